"""`python -m bench [--quick] [--only NAME …]`: measure, print, and write `bench/results/`."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    activations,
    batch_route,
    burst,
    busy,
    distance,
    emergency,
    hosts,
    idle,
    kill,
    lost_replies,
    machine_cost,
    peak,
    reply_timeout,
    session_rate,
    skew,
    waiting,
)
from bench.report import targets_table, to_markdown, write
from bench.result import Result
from bench.stage import ROOT, Stage

# In the order in which they run.
MEASUREMENTS: dict[str, Callable[[Stage], Result]] = {
    "machine": machine_cost.measure,
    "activations": activations.measure,
    "session": session_rate.measure,
    "idle": idle.measure,
    "busy": busy.measure,
    "distance": distance.measure,
    "emergency": emergency.measure,
    "burst": burst.measure,
    "batch": batch_route.measure,
    "kill": kill.measure,
    "lost": lost_replies.measure,
    "reply-timeout": reply_timeout.measure,
    "peak": peak.measure,
    "waiting": waiting.measure,
    "skew": skew.measure,
    "hosts": hosts.measure,
}
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds; a few minutes")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=list(MEASUREMENTS), help="of " + ", ".join(MEASUREMENTS)
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for tables and pictures")
    given = parser.parse_args()
    began = time.monotonic()
    results: list[Result] = []
    with Stage(quick=given.quick) as stage:
        for name in given.only or MEASUREMENTS:
            results.append(_run(name, stage))
            print(to_markdown(results[-1]), flush=True)
    headline = _headline(given.quick, time.monotonic() - began)
    write(results, given.results, headline)
    print(targets_table([target for result in results for target in result.targets]))
    print(headline)
    return 1 if any(result.error for result in results) else 0


def _run(name: str, stage: Stage) -> Result:
    print(f"… {name}", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        result = MEASUREMENTS[name](stage)
        left = stage.open_workflows()
        if left:
            result.notes.append(
                f"**{left} workflows were left open: the workers measured after this served them, too.**"
            )
    except Exception as error:
        traceback.print_exc()
        result = Result(name, name, error=f"{type(error).__name__}: {error}")
    result.seconds = time.monotonic() - began
    return result


def _headline(quick: bool, seconds: float) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{'Quick run' if quick else 'Full run'} of {commit.stdout.strip() or 'an unknown commit'} at "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {seconds / 60:.1f} min, on {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, load at the end {load}."
    )


if __name__ == "__main__":
    sys.exit(main())
