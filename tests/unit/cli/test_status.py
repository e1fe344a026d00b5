"""`status` in words: the forecast says what waits, and what is under way."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from oldhost_sync.cli.status import StatusFindings, picture
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from workflows import status_report


def forecast_of(*, waiting: int = 0, in_flight: int = 0, **forecast: Any) -> str:
    """The line that people see, of a writer that reports this."""
    writer = status_report.status(Machine(WriterPolicy(), 0), "oldhost", 0)
    writer |= {"waiting": waiting, "in_flight": in_flight, "forecast": writer["forecast"] | forecast}
    page = StringIO()
    Console(file=page, width=120).print(picture(StatusFindings("oldhost", writer=writer)))
    (line,) = [line for line in page.getvalue().splitlines() if line.startswith("forecast")]
    return line.removeprefix("forecast").strip()


@pytest.mark.parametrize(
    ("writer", "said"),
    [
        ({}, "nothing waits at the writer"),
        ({"in_flight": 3}, "nothing waits at the writer behind the 3 in flight"),
        ({"waiting": 5, "drain_ms": 2000, "oldest_age_ms": 3000}, "empty in 2.0 s, oldest then 3.0 s"),
        ({"waiting": 5, "drain_ms": None, "oldest_age_ms": None}, "never empty: more arrives than is applied"),
    ],
)
def test_forecast_tells_what_waits_and_what_is_in_flight(writer: dict[str, Any], said: str) -> None:
    assert forecast_of(**writer) == said
