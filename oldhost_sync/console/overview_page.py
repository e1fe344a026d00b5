"""The first page: what is wrong, since when, why, and what one may do about it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.auth import OPERATORS, WATCHERS
from oldhost_sync.api.schemas import Flush
from oldhost_sync.console.layout import PREFIX
from oldhost_sync.console.lookout import Lookout, View
from oldhost_sync.console.page import Adder, Console, Page
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.writer_policy import CONSISTENCY_MS, EMERGENCY_MS
from oldhost_sync.store.outbox.relay_queue import Books

NEXT_SHOWN = 10
# Each is a template of its own in `parts`, and one element of the page.
PARTS = ("banner", "alerts", "lanes", "flow", "forecast", "nonces", "books", "upcoming")
_PROMISES_MS = dict.fromkeys(PriorityClass, CONSISTENCY_MS) | {PriorityClass.EMERGENCY: EMERGENCY_MS}


class OverviewPage(Page):
    title = "Overview"
    path = PREFIX

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.lookout = Lookout(console.parts)

    def mount(self, add: Adder) -> None:
        add("GET", PREFIX, self.show, WATCHERS)
        for action, handler in (("pause", self.pause), ("resume", self.resume), ("flush", self.flush)):
            add("POST", f"{PREFIX}/{action}", handler, OPERATORS)

    async def show(self, request: Request) -> Response:
        return self.page(request, "overview.html", parts=self.parts(await self.lookout.look()))

    def parts(self, view: View) -> dict[str, str]:
        """The parts of the page that change, by name."""
        shown = figures(view)
        return {name: self.console.layout.part(name, **shown) for name in PARTS}

    async def pause(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "pause"))

    async def resume(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "resume"))

    async def flush(self, request: Request) -> Response:
        """What the debounce holds back, of one entity or of all, goes to its lane now."""
        return self._done(await self.console.act(request, "flush", Flush))

    def _done(self, message: str) -> Response:
        return self.console.layout.redirect(PREFIX, message)


def figures(view: View) -> dict[str, Any]:
    """What the templates show: the view, and what is reckoned from it."""
    forecast = view.writer["forecast"] if view.writer else None
    drain_ms = forecast["drain_ms"] if forecast else None
    return {
        "view": view,
        "situation": view.situation,
        "lanes": _lanes(view),
        "through_at": view.at + timedelta(milliseconds=drain_ms) if drain_ms is not None else None,
        "compression": _compression(view.status),
        "balances": _balances(view.status),
        "next_shown": NEXT_SHOWN,
    }


def _lanes(view: View) -> list[dict[str, Any]]:
    """By class: depth, oldest age against its promise, share of the next turns."""
    turns = Counter(each["priority_class"] for each in view.upcoming or ())
    lanes = view.writer["lanes"] if view.writer else {}
    return [
        {
            "name": cls.value,
            "promise_ms": _PROMISES_MS[cls],
            "turns": turns[cls.value] / turns.total() if turns else None,
            **lanes.get(cls.value, {"depth": None, "oldest_age_ms": None}),
        }
        for cls in PriorityClass
    ]


def _compression(status: dict[str, Any] | None) -> dict[str, float] | None:
    """Changes that ended, against the operations that this took."""
    if status is None:
        return None
    books = status["books"]
    operations = books["applied"] + books["dead"]
    changes = operations + books["superseded"] + books["no_op"] + books["stale"]
    return {"changes": changes, "operations": operations, "ratio": changes / operations} if operations else None


def _balances(status: dict[str, Any] | None) -> bool | None:
    return None if status is None else Books(**status["books"]).balance
