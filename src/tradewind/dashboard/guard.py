"""Who may ask: the holder of the printed address, from a page of this very server, and only to read."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")  # any port: a tunnel may end at another one
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Stands before the application: checks every request, and adds the headers of every answer."""

    def __init__(self, app: App, port: int) -> None:
        self._app = app
        self.token = secrets.token_urlsafe(24)
        self._name, self._pass = f"tradewind-{port}", secrets.token_urlsafe(24)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer, refuse, or hand on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        first = scope["path"] == "/" and self._has_token(scope["query_string"])
        status, why = self._refusal(scope, headers, first)
        send = self._with_headers(send, scope["path"], first)
        if status:
            await _say(send, status, why)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Message, headers: dict[str, str], first: bool) -> tuple[int, str]:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not HOST.fullmatch(host):
            return 403, "this page is served to 127.0.0.1 and localhost alone"
        if origin is not None and origin != f"http://{host}":
            return 403, "asked from another site"
        if scope["path"] != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "asked from another site"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page only reads: GET and HEAD"
        if not first and not self._has_pass(headers.get("cookie", "")):
            return 403, "open the address that `tradewind serve` printed: it holds the key to this page"
        return 0, ""

    def _has_token(self, query: bytes) -> bool:
        given = parse_qs(query.decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _has_pass(self, cookies: str) -> bool:
        try:
            found = SimpleCookie(cookies).get(self._name)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._pass.encode())

    def _with_headers(self, send: Send, path: str, first: bool) -> Send:
        added = {**HEADERS, "content-security-policy": PICTURE_POLICY if path.endswith(".svg") else POLICY}
        if first:
            added["set-cookie"] = f"{self._name}={self._pass}; Path=/; HttpOnly; SameSite=Strict"
        pairs = [(name.encode(), value.encode()) for name, value in added.items()]

        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", ()) if pair[0].lower().decode() not in added]
                message = {**message, "headers": [*kept, *pairs]}
            await send(message)

        return wrapped


async def _say(send: Send, status: int, text: str) -> None:
    allow = [(b"allow", b"GET, HEAD")] if status == 405 else []
    body = text.encode()
    about = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *allow]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})
