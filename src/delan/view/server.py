"""The web server of the page and its access control.

Viser serves the page and its messages on one port without any access control, so every request is
checked before viser handles it: a page of another site must not control the robot, and another
machine needs a token. No other file imports viser.
"""

import http
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import rich
import websockets.asyncio.server as websockets_server
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..errors import SettingsError, installing

COOKIE = "delan_token"
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
# 12 characters of 66 are 72 bits, too many to guess over a network.
TOKEN_LENGTH = 12
USUAL_PORT = 8080

Handler = Callable[[Any, Request], Any]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse an address that other machines can reach without a token, and refuse a weak token."""
    if not token and not is_loopback(host):
        raise SettingsError(
            f"--host {host} lets other machines control the robot; "
            f"give a --token that they must know, at least {TOKEN_LENGTH} characters"
        )
    if token is None:
        return
    if len(token) < TOKEN_LENGTH:
        raise SettingsError(
            f"a token of {len(token)} characters can be guessed; give at least {TOKEN_LENGTH}"
        )
    if not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
        raise SettingsError(
            "a token is part of a URL and of a cookie; use only letters a to z, digits and . _ ~ -"
        )


class RequestGuard:
    """Checks every request before it is served."""

    def __init__(self, host: str, token: str | None):
        self._local = is_loopback(host)
        self._token = token

    def refusal(self, request: Request) -> str | None:
        """Return why a request is refused; None if it is served."""
        host = request.headers.get("Host", "")
        # DNS rebinding: the name of a foreign site that resolves to this machine.
        if self._local and urlsplit(f"//{host}").hostname not in LOCAL_NAMES:
            return "this page is only for the machine that serves it"
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "a page of another site must not control the robot"
        if self._token is not None and not _carries(request, self._token):
            return "a token is needed: open the address with ?token=… printed in the terminal"
        return None

    def before(self, serve: Handler | None) -> Handler:
        """Return a handler that checks a request, then passes it on to `serve`."""

        def process(connection: Any, request: Request) -> Response | None:
            reason = self.refusal(request)
            if reason is not None:
                body = f"{reason}\n".encode()
                headers = Headers(
                    {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
                )
                return Response(http.HTTPStatus.FORBIDDEN, "Forbidden", headers, body)
            if serve is None:
                return None
            response = serve(connection, request)
            if response is not None and self._token is not None:
                cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
                response.headers["Set-Cookie"] = cookie
            return response

        return process


def _carries(request: Request, token: str) -> bool:
    """Return whether a request has the token in its URL or in a cookie."""
    given = parse_qs(urlsplit(request.path).query).get("token", [])
    # Not http.cookies: it fails on malformed cookies, which other servers on this machine may set.
    for cookie in request.headers.get("Cookie", "").split(";"):
        name, _, value = cookie.strip().partition("=")
        if name == COOKIE:
            given.append(value)
    # The comparison takes the same time for every text, so that timing reveals nothing.
    expected = token.encode()
    return any(secrets.compare_digest(text.encode(errors="replace"), expected) for text in given)


@contextmanager
def _guarded(guard: RequestGuard) -> Iterator[None]:
    """Install a guard in the viser server that is created inside the block.

    Viser takes no request handler, so the function that it calls to serve websockets is wrapped.
    """
    serve = websockets_server.serve

    def guarded_serve(*args: Any, process_request: Any = None, **kwargs: Any) -> Any:
        return serve(*args, process_request=guard.before(process_request), **kwargs)

    websockets_server.serve = guarded_serve
    try:
        yield
    finally:
        websockets_server.serve = serve


def open_server(host: str, port: int | None, token: str | None) -> Any:
    """Open a viser server at a port; without one, at 8080 or the next free port."""
    try:
        import viser
    except ImportError as error:
        raise SettingsError(f"the page needs viser ({error}); {installing('view')}") from None
    require_token(host, token)
    if not _can_bind(host, 0):
        raise SettingsError(
            f"this machine has no address {host}; give one of its own, such as 127.0.0.1 or 0.0.0.0"
        )
    if port is None:
        port = USUAL_PORT  # viser takes the next free one
    elif port != 0 and not _can_bind(host, port):
        raise SettingsError(f"port {port} of {host} is taken; leave --port out to get a free one")
    # Viser prints its own address there, which lacks the token.
    rich.get_console().quiet = True
    with _guarded(RequestGuard(host, token)):
        return viser.ViserServer(host=host, port=port, label="delan", verbose=False)


def _can_bind(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def page_address(server: Any, token: str | None) -> str:
    """Return the URL of the page, with the token if there is one."""
    host = server.get_host()
    if host in ("0.0.0.0", "localhost"):
        host = "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    url = f"http://{host}:{server.get_port()}/"
    return f"{url}?token={token}" if token else url
