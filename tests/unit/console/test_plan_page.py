"""The plan's picture: lines that stay within it, and the ban shaded."""

from __future__ import annotations

from typing import Any

from oldhost_sync.console.charts import HEIGHT, WIDTH, Shade
from oldhost_sync.console.plan_page import draw_plan, shade_bans


def sample(at_ms: int, ready: int = 0, debounced: int = 0, *, banned: bool = False) -> dict[str, Any]:
    return {"at_ms": at_ms, "ready": ready, "debounced": debounced, "sent": 0, "banned": banned}


def points(path: str) -> list[tuple[float, float]]:
    return [tuple(map(float, each.strip("ML").split(","))) for each in path.split(" ")]  # type: ignore[misc]


def test_what_waits_reaches_the_top_of_the_picture_and_what_is_ready_its_share() -> None:
    waiting, ready = draw_plan([sample(0), sample(500, 10, 10), sample(1000)])
    assert (waiting.last, ready.last) == (20, 10)
    assert points(waiting.paths[0]) == [(0, HEIGHT), (WIDTH / 2, 4), (WIDTH, HEIGHT)]
    assert points(ready.paths[0])[1] == (WIDTH / 2, HEIGHT - (HEIGHT - 4) / 2)


def test_a_plan_without_samples_has_no_line() -> None:
    assert [line.paths for line in draw_plan([])] == [[], []]


def test_a_ban_is_shaded_from_its_first_sample_to_the_first_without_it() -> None:
    samples = [sample(0), sample(250, banned=True), sample(500, banned=True), sample(750), sample(1000)]
    assert shade_bans(samples) == [Shade("BANNED", WIDTH / 4, WIDTH / 2)]


def test_a_ban_that_lasts_to_the_end_is_shaded_to_the_end() -> None:
    assert shade_bans([sample(0), sample(500, banned=True), sample(1000, banned=True)]) == [
        Shade("BANNED", WIDTH / 2, WIDTH / 2)
    ]
