"""The planner as a form: from what is waiting now, or from a scenario. The address has all inputs and can be shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import WATCHERS
from oldhost_sync.api.routes.plan import WantedPlan
from oldhost_sync.console.charts import HEIGHT, WIDTH, Line, Shade
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX

PLAN = f"{PREFIX}/plan"
Samples = Sequence[dict[str, Any]]


class PlanPage(Page):
    title = "Plan"
    path = PLAN

    def mount(self, add: Adder) -> None:
        add("GET", PLAN, self.show, WATCHERS)

    async def show(self, request: Request, wanted: WantedPlan) -> Response:
        """Without a query only the form: a plan is computed on request."""
        planned = await self.console.dependencies.planner.plan(wanted) if request.scope["query_string"] else None
        shown = planned.scenario if planned else wanted.scenario
        answer = planned.answer if planned else None
        return self.page(
            request,
            "plan.html",
            given=asdict(wanted.scenario),
            wanted=wanted,
            played=asdict(shown),
            planned=planned,
            answer=answer,
            lines=draw_plan(answer.samples) if answer else [],
            shades=shade_bans(answer.samples) if answer else [],
        )


def draw_plan(samples: Samples) -> list[Line]:
    """What is waiting, and the part of it that is ready to be sent, over the plan's time."""
    end = max(samples[-1]["at_ms"], 1) if samples else 1
    top = max([*map(_waiting, samples), 1])

    def line(name: str, label: str, values: Sequence[int]) -> Line:
        points = [
            f"{sample['at_ms'] / end * WIDTH:.1f},{HEIGHT - value / top * (HEIGHT - 4):.1f}"
            for sample, value in zip(samples, values, strict=True)
        ]
        return Line(name, label, max(values, default=0), [f"M{' L'.join(points)}"] if points else [])

    return [
        line("accepted", "waiting", [_waiting(sample) for sample in samples]),
        line("applied", "ready to be sent", [sample["ready"] for sample in samples]),
    ]


def shade_bans(samples: Samples) -> list[Shade]:
    """The times when OldHost bans."""
    end = max(samples[-1]["at_ms"], 1) if samples else 1
    shades: list[Shade] = []
    begun: int | None = None
    for sample in samples:
        if sample["banned"] and begun is None:
            begun = sample["at_ms"]
        elif not sample["banned"] and begun is not None:
            shades.append(Shade("BANNED", begun / end * WIDTH, (sample["at_ms"] - begun) / end * WIDTH))
            begun = None
    return shades if begun is None else [*shades, Shade("BANNED", begun / end * WIDTH, WIDTH - begun / end * WIDTH)]


def _waiting(sample: dict[str, Any]) -> int:
    return int(sample["ready"] + sample["debounced"])
