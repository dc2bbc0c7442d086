"""What can be asked of the live page, and how a question is read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tradewind.dashboard.compare import compare_view
from tradewind.dashboard.drawing import Asked, Studio
from tradewind.dashboard.feed import Feed
from tradewind.dashboard.runs import Runs, summary
from tradewind.dashboard.trial import trial_view
from tradewind.dashboard.views import Page, advice_view, failures_view, live_view, run_view, table_view, trials_view
from tradewind.errors import Mistake

MOST_KEPT, MOST_BYTES = 64, 1 << 20
FIGURE_NAMES = ("x", "y", "color", "rows", "columns", "value", "time", "score")
View = Callable[[Request], Any]


def plain_json(content: Any) -> bytes:
    """JSON that can stand anywhere: no NaN, and no sign that begins a tag."""
    return to_json(content, inf_nan_mode="null", fallback=str).replace(b"<", b"\\u003c")


class Board:
    """The runs, and what was drawn and worked out of them last."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.studio = Studio()
        self._kept: OrderedDict[object, bytes] = OrderedDict()
        self._keeping = threading.Lock()

    def kept(self, request: Request, feeds: Sequence[Feed], work: Callable[[], Any]) -> bytes:
        """The JSON of a view, worked out once for as long as nothing is new."""
        key = str(request.url.path), str(request.url.query), tuple((feed.name, feed.version) for feed in feeds)
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = plain_json(work())
        with self._keeping:
            if len(found) < MOST_BYTES:
                self._kept[key] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


def views(board: Board) -> dict[str, View]:
    """Every view by its path."""

    def feed(request: Request) -> Feed:
        return board.runs.feed(request.query_params.get("run", ""))

    def feeds(request: Request) -> list[Feed]:
        return [board.runs.feed(name) for name in dict.fromkeys(request.query_params.getlist("run"))]

    def of_run(work: Callable[[Feed, Request], Any]) -> View:
        return lambda request: board.kept(request, [feed(request)], lambda: work(feed(request), request))

    def compare(request: Request) -> bytes:
        ask, some = request.query_params, feeds(request)
        words = ask.get("rows", ""), ask.get("value", ""), ask.get("stat", "median")
        return board.kept(request, some, lambda: compare_view(some, *words))

    def about_figure(request: Request) -> bytes:
        picture = board.studio.picture(feeds(request), _asked(request))
        return plain_json({"title": picture.title, "note": picture.note})

    def figure(request: Request) -> Response:
        picture = board.studio.picture(feeds(request), _asked(request))
        return Response(picture.on(request.query_params.get("theme") == "dark"), media_type="image/svg+xml")

    def table(one: Feed, request: Request) -> Any:
        ask = request.query_params
        names = {name: ask.get(name, "") for name in ("rows", "columns", "by", "value")}
        return table_view(one, {**names, "stat": ask.get("stat", "median")}, ask.get("where", ""), _picked(request))

    return {
        "/api/runs": lambda _: plain_json({"runs": [summary(one) for one in board.runs.feeds.values()]}),
        "/api/run": of_run(lambda one, _: run_view(one)),
        "/api/live": lambda request: plain_json(live_view(feed(request), _whole(request, "after", 0))),
        "/api/trials": of_run(lambda one, request: trials_view(one, _page(request))),
        "/api/table": of_run(table),
        "/api/failures": of_run(lambda one, _: failures_view(one)),
        "/api/advice": of_run(lambda one, _: advice_view(one)),
        "/api/trial": of_run(lambda one, request: trial_view(one, _whole(request, "trial", 0))),
        "/api/compare": compare,
        "/api/figure": about_figure,
        "/api/figure.svg": figure,
    }


def _whole(request: Request, name: str, otherwise: int) -> int:
    text = request.query_params.get(name, str(otherwise))
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Mistake(f"{name}: found {text[:40]!r}; allowed: a whole number")
    return int(text)


def _picked(request: Request) -> tuple[int, ...]:
    parts = [part for part in request.query_params.get("trials", "").split(",") if part]
    if not all(part.isascii() and part.isdigit() and len(part) <= 15 for part in parts):
        raise Mistake("trials: allowed: whole numbers with commas")
    return tuple(map(int, parts))


def _page(request: Request) -> Page:
    ask = request.query_params
    columns = tuple(name for name in ask.get("columns", "trial").split(",") if name)
    return Page(
        ask.get("where", ""), _picked(request), ask.get("sort", "trial"), ask.get("order") == "down",
        _whole(request, "offset", 0), _whole(request, "limit", 50), columns,
    )  # fmt: skip


def _asked(request: Request) -> Asked:
    ask = request.query_params
    names = {name: ask[name] for name in FIGURE_NAMES if ask.get(name)}
    return Asked(ask.get("kind", ""), names, ask.get("where", ""), _picked(request))
