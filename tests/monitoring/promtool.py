"""Prometheus's own tool: it checks the rules, and says which fire when something was scraped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from oldhost_sync.stack.machine import need_program

INSTALL = "`make promtool` takes it from Debian's package `prometheus`"
# A place in a test file where an alert fires that was not expected.
_FIRES = re.compile(r"^\s*alertname: (\w+), time: ", re.MULTILINE)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("promtool")
    program = str(beside) if beside.exists() else need_program("promtool", install=INSTALL)
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def firing(rules: Path, names: Sequence[str], series: Mapping[str, str], step_s: int, at_s: int) -> set[str]:
    """Which of the rules `names` fire at `at_s`. `series`: samples in promtool's notation, every `step_s`."""
    test = {
        "interval": f"{step_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{at_s}s", "alertname": name, "exp_alerts": []} for name in names],
    }
    asked = {"rule_files": [str(rules)], "evaluation_interval": f"{step_s}s", "tests": [test]}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump(asked, file)  # JSON is YAML, too
        file.flush()
        told = promtool("test", "rules", file.name)
    found = set(_FIRES.findall(told.stderr + told.stdout))
    assert (told.returncode == 0) == (not found), told.stderr + told.stdout
    return found
