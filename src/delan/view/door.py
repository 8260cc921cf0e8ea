"""The server of the page, and who may come in.

Only viser lives here. It serves its page and its messages on one port and asks nobody who he is, so every request is
looked at before viser sees it: a page of another site must not steer the robot, and from another machine a token is
needed.
"""

import http
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import rich
import websockets.asyncio.server as websockets_server
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..errors import SettingsError, installing

COOKIE = "delan_token"
LOCAL = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse to be seen by other machines without a token."""
    if not is_loopback(host) and not token:
        raise SettingsError(
            f"--host {host} lets other machines steer the robot; give a --token that they must know (12 letters)"
        )
    if token is not None and len(token) < 12:
        raise SettingsError(f"a token of {len(token)} characters can be guessed; give at least 12")
    if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
        raise SettingsError("a token stands in an address and in a cookie; give letters a to z, digits and . _ ~ -")


class Door:
    """Looks at every request before it is served."""

    def __init__(self, host: str, token: str | None):
        self._local, self._token = is_loopback(host), token

    def refusal(self, request: Request) -> str | None:
        """Why a request is not served, as a sentence; None if it is."""
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname
        if self._local and host not in LOCAL:
            return "this page is for its own machine"  # a foreign name that leads here (DNS rebinding)
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host", ""):
            return "a page of another site may not steer the robot"
        if self._token is not None and not any(_same(one, self._token) for one in _tokens(request)):
            return "a token is needed: open the address with ?token=… as the terminal tells it"
        return None

    def asked(self, serve: Callable[[Any, Request], Response | None] | None) -> Callable[[Any, Request], Any]:
        """In front of another handler of requests."""

        def process(connection: Any, request: Request) -> Response | None:
            why = self.refusal(request)
            if why is not None:
                body = f"{why}\n".encode()
                headers = Headers({"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))})
                return Response(http.HTTPStatus.FORBIDDEN, "Forbidden", headers, body)
            response = None if serve is None else serve(connection, request)
            if response is not None and self._token is not None:
                response.headers["Set-Cookie"] = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            return response

        return process


def _tokens(request: Request) -> list[str]:
    """The tokens that a request brings, in its address or in a cookie."""
    found = parse_qs(urlsplit(request.path).query).get("token", [])
    # By hand: cookies of other servers of this machine come along, and Python's parser gives up on the odd ones.
    cookies = (one.strip().partition("=") for one in request.headers.get("Cookie", "").split(";"))
    return [*found, *(value for name, _, value in cookies if name == COOKIE)]


def _same(given: str, token: str) -> bool:
    """In the same time for any text, which need not be ASCII."""
    return secrets.compare_digest(given.encode(errors="replace"), token.encode())


@contextmanager
def _guarded(door: Door) -> Any:
    """While a viser server is made: have it ask the door. It takes no handler of requests, so the maker is wrapped."""
    serve = websockets_server.serve

    def guarded(*args: Any, process_request: Any = None, **kwargs: Any) -> Any:
        return serve(*args, process_request=door.asked(process_request), **kwargs)

    websockets_server.serve = guarded
    try:
        yield
    finally:
        websockets_server.serve = serve


def open_server(host: str, port: int | None, token: str | None, *, usual: int = 8080) -> Any:
    """A viser server at the port, or, if none is asked for, at the usual one or the next that is free."""
    try:
        import viser
    except ImportError as error:
        raise SettingsError(f"the page needs viser ({error}); {installing('view')}") from None
    require_token(host, token)
    chosen = usual if port is None else port
    if not _free(host, 0):
        raise SettingsError(f"this machine has no address {host}; give one of its own, such as 127.0.0.1 or 0.0.0.0")
    if port is not None and port != 0 and not _free(host, port):
        raise SettingsError(f"port {port} of {host} is taken; leave --port out to get a free one")
    # There viser draws a box with an address of its own, and says that it ends; what we tell goes elsewhere.
    rich.get_console().quiet = True
    with _guarded(Door(host, token)):
        return viser.ViserServer(host=host, port=chosen, label="delan", verbose=False)


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def address_of(server: Any, token: str | None) -> str:
    """What to type into a browser."""
    host = server.get_host()
    host = "127.0.0.1" if host in ("0.0.0.0", "localhost") else f"[{host}]" if ":" in host else host
    return f"http://{host}:{server.get_port()}/" + (f"?token={token}" if token else "")
