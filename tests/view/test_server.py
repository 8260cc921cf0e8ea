"""Access control of the page's server, and its addresses."""

import socket
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.client import connect

from delan.errors import SettingsError
from delan.view.server import (
    RequestGuard,
    is_loopback,
    open_server,
    page_address,
    require_token,
)

TOKEN = "a-long-enough-token"


def request(path: str = "/", host: str = "127.0.0.1:8080", **headers: str) -> Request:
    return Request(path, Headers({"Host": host, **headers}))


def test_only_this_machine_and_no_other_site_is_served():
    guard = RequestGuard("127.0.0.1", None)
    assert guard.refusal(request()) is None
    assert guard.refusal(request(Origin="http://127.0.0.1:8080")) is None
    for origin in ("http://evil.example", "http://127.0.0.1:9999"):
        assert "another site" in str(guard.refusal(request(Origin=origin)))
    for host in ("evil.example:8080", ""):
        assert "only for the machine" in str(guard.refusal(request(host=host)))


@pytest.mark.parametrize(
    ("path", "cookie"),
    [
        (f"/?token={TOKEN}", ""),
        ("/", f"x=y; delan_token={TOKEN}"),
        ("/", f"a@b=c; delan_token={TOKEN}"),
    ],
)
def test_the_token_is_accepted_in_the_address_and_in_a_cookie(path, cookie):
    guard = RequestGuard("0.0.0.0", TOKEN)
    assert guard.refusal(request(path, host="robot:8080", Cookie=cookie)) is None


@pytest.mark.parametrize("token", ["wrong", "w%C3%B6rong", "ä-long-enough-token", "\udce4"])
def test_another_machine_without_the_token_is_refused(token):
    guard = RequestGuard("0.0.0.0", TOKEN)
    for refused in (
        request(host="robot:8080"),
        request(f"/?token={token}", host="robot:8080"),
        request(host="robot:8080", Cookie="delan_token=; ;;="),
    ):
        assert "a token is needed" in str(guard.refusal(refused))


def test_a_refusal_gives_its_reason_and_a_served_page_sets_a_cookie():
    def serve(connection: Any, request: Request) -> Response | None:
        return Response(200, "OK", Headers()) if request.path.startswith("/?") else None

    process = RequestGuard("0.0.0.0", TOKEN).before(serve)
    refused = process(None, request("/?token=wrong"))
    assert (refused.status_code, refused.headers["Content-Length"]) == (403, str(len(refused.body)))
    assert b"a token is needed" in refused.body
    served = process(None, request(f"/?token={TOKEN}"))
    assert served.status_code == 200
    cookie, *attributes = served.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict"} < set(attributes)
    assert process(None, request("/socket", Cookie=cookie)) is None  # passed on to viser
    local = RequestGuard("127.0.0.1", None).before(serve)
    assert "Set-Cookie" not in local(None, request("/?")).headers


def test_a_taken_port_and_a_foreign_address_are_refused():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 is taken; .* --port"):
            open_server("127.0.0.1", port, None)
    with pytest.raises(SettingsError, match=r"no address 203\.0\.113\.7; give one of its own"):
        open_server("203.0.113.7", None, TOKEN)


@pytest.mark.parametrize(
    ("host", "token", "address"),
    [
        ("0.0.0.0", TOKEN, f"http://127.0.0.1:8080/?token={TOKEN}"),
        ("::1", None, "http://[::1]:8080/"),
        ("192.168.1.5", None, "http://192.168.1.5:8080/"),
    ],
)
def test_the_address_is_a_url_for_a_browser(host, token, address):
    server = SimpleNamespace(get_host=lambda: host, get_port=lambda: 8080)
    assert page_address(server, token) == address


@pytest.mark.parametrize(
    ("host", "token"), [("0.0.0.0", None), ("192.168.1.5", ""), ("::", None), ("robot", None)]
)
def test_other_machines_need_a_strong_token(host, token):
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match="other machines control the robot; give a --token"):
        require_token(host, token)
    with pytest.raises(SettingsError, match="5 characters can be guessed"):
        require_token(host, "short")
    for wrong in ("a token with blanks", "twelve-letterß", "semi;colon;token", "question?&token"):
        with pytest.raises(SettingsError, match="only letters a to z, digits and"):
            require_token(host, wrong)
    require_token(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_needs_no_token(host):
    require_token(host, None)


def test_viser_prints_nothing(capfd):
    server = open_server("127.0.0.1", 0, None)
    url = f"ws://127.0.0.1:{server.get_port()}/"
    protocols: Any = ["viser-v0.0.0"]
    with connect(url, subprotocols=protocols) as visitor, suppress(ConnectionClosed):
        visitor.recv(timeout=10)
    server.stop()
    assert tuple(capfd.readouterr()) == ("", "")
