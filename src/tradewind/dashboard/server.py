"""The server of the live page: files of the package, plain values, figures, and a stream of what is new."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tradewind.dashboard.api import Board, View, plain_json, views
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.guard import Guard
from tradewind.dashboard.runs import Runs, summary
from tradewind.dashboard.views import live_view
from tradewind.errors import Mistake, RunError

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PORT = 8737
POLL_S, UNWATCHED_POLL_S = 0.5, 2.0
BEAT_S = 5.0
MOST_STREAMS = 32
NICE = 5


class Dashboard:
    """What all requests share: the runs, what was drawn and worked out, and who is watching."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.board = Board(runs)
        self.streams = 0
        self.closing = False
        self._turn = asyncio.Condition()
        self._wake = asyncio.Event()

    async def follow(self) -> None:
        """Look at the journals again and again, seldom while nobody watches."""
        while True:
            began = time.monotonic()
            await asyncio.to_thread(self.runs.poll)
            async with self._turn:
                self._turn.notify_all()
            self._wake.clear()
            pause = POLL_S if self.streams else UNWATCHED_POLL_S
            slow = 10 * (time.monotonic() - began)  # a slow disk is not asked all the time
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(max(pause, slow), 10 * POLL_S))

    async def stream(self, name: str) -> AsyncIterator[bytes]:
        """What is new in all runs, and the details of one of them."""
        self._wake.set()
        seen: dict[str, int] = {}
        after, said = 0, 0.0
        while not self.closing:
            feeds = self.runs.feeds
            news = [feed for feed in list(feeds.values()) if seen.get(feed.name) != feed.version]
            if news or not said:
                seen |= {feed.name: feed.version for feed in news}
                yield await run_in_threadpool(_news, news)
                if name in feeds and feeds[name] in news:
                    after, event = await run_in_threadpool(_details, feeds[name], after)
                    yield event
                said = time.monotonic()
            elif time.monotonic() - said > BEAT_S:
                yield _event("beat", {"now": time.time()})
                said = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with self._turn:
                    await asyncio.wait_for(self._turn.wait(), BEAT_S)


class EventStream(StreamingResponse):
    """Counts among the open streams from the request on, whether anything was sent yet or not."""

    def __init__(self, dashboard: Dashboard, run: str) -> None:
        super().__init__(dashboard.stream(run), media_type="text/event-stream")
        self._dashboard = dashboard
        dashboard.streams += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the page is closed."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._dashboard.streams -= 1


def _event(kind: str, content: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), plain_json(content))


def _news(feeds: Sequence[Feed]) -> bytes:
    return _event("runs", {"runs": [summary(feed) for feed in feeds], "now": time.time()})


def _details(feed: Feed, after: int) -> tuple[int, bytes]:
    live = live_view(feed, after)
    newest = live["spans"][-1][0] if live["spans"] else after
    return newest, _event("run", {"summary": summary(feed), **live})


def make_app(runs: Runs, port: int) -> tuple[Guard, Dashboard]:
    """The application behind its guard."""
    dashboard = Dashboard(runs)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(dashboard.follow())
        yield
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    files = {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in STATIC.iterdir() if path.suffix in KINDS}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return Response("no such file", 404)
        content, kind = files[name]
        return Response(content, media_type=kind)

    routes = [Route("/", file), Route("/static/{name}", file), Route("/api/events", _events(dashboard))]
    for path, view in views(dashboard.board).items():
        routes.append(Route(path, _answering(view)))
    return Guard(Starlette(routes=routes, lifespan=lifespan), port), dashboard


def _answering(view: View) -> Callable[[Request], Any]:
    """A view as an endpoint: worked out in a thread, a mistake told as one."""

    async def answer(request: Request) -> Response:
        try:
            found = await run_in_threadpool(view, request)
        except RunError as error:
            return Response(plain_json({"error": str(error)}), 404, media_type="application/json")
        except Mistake as error:
            return Response(plain_json({"error": str(error)}), 400, media_type="application/json")
        except Exception as error:  # a record that nobody thought of; the page of the others goes on
            print(f"tradewind: {request.url.path}: {type(error).__name__}: {error}", file=sys.stderr)
            what = f"this can't be shown: {type(error).__name__}: {error}"
            return Response(plain_json({"error": what}), 500, media_type="application/json")
        return found if isinstance(found, Response) else Response(found, media_type="application/json")

    return answer


def _events(dashboard: Dashboard) -> Callable[[Request], Any]:
    async def events(request: Request) -> Response:
        if dashboard.streams >= MOST_STREAMS:
            return Response("too many pages are open", 503)
        return EventStream(dashboard, request.query_params.get("run", ""))

    return events


class _Server(uvicorn.Server):
    """Ends its streams when it is told to end, which otherwise would go on for ever."""

    dashboard: Dashboard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.dashboard.closing = True
        super().handle_exit(sig, frame)


def serve(given: Sequence[Path], port: int | None = None, say: Callable[[str], None] = print) -> None:
    """Serve the page of these runs, or of all under runs/, until interrupted; 127.0.0.1 alone can reach it."""
    runs = Runs(given)
    listening = _listening(port)
    number = listening.getsockname()[1]
    guard, dashboard = make_app(runs, number)
    config = uvicorn.Config(
        guard, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
        lifespan="on", timeout_graceful_shutdown=3,
    )  # fmt: skip
    address = f"http://127.0.0.1:{number}/?token={guard.token}"
    for line in announced(address, number):
        say(line)
    os.nice(NICE)  # a run on this machine goes first
    server = _Server(config)
    server.dashboard = dashboard
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


def announced(address: str, port: int) -> list[str]:
    """What is printed: the address, and how to reach it from a desk where this host has no display."""
    lines = [f"the live page: {address}"]
    here = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"
    if os.environ.get("SSH_CONNECTION") or not here:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = "USER"  # a container may have no name for its user
        host = socket.gethostname()
        lines.append(
            f"from your own machine: ssh -N -L {port}:127.0.0.1:{port} {user}@{host}   then open the address"
        )
    return [*lines, "Ctrl-C ends it; the runs go on"]


def _listening(port: int | None) -> socket.socket:
    tried = [PORT, 0] if port is None else [port]
    for number in tried:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", number))
            listening.listen()  # whoever opens the address at once waits a moment, and is not refused
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            why = getattr(error, "strerror", None) or "allowed: 0 to 65535"
    raise Mistake(f"--port {port}: {why}; leave it out and a free one is taken")
