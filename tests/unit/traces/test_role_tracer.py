"""Traces are off unless a setting says otherwise; while they are off nothing of OpenTelemetry's SDK is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oldhost_sync.explanations import explain
from oldhost_sync.settings import Settings, SettingsError, TraceExport, load_settings
from oldhost_sync.traces.tracer import Tracer, role_tracer
from oldhost_sync.user_errors import WRONG
from tests.architecture.project_files import ROOT
from tests.monitoring.kept_spans import KeptSpans

ALL_ROLES = """
import sys
from oldhost_sync.roles import api, relay, worker
from oldhost_sync.settings import load_settings
from oldhost_sync.traces.tracer import role_tracer
print(role_tracer(load_settings(), "api"))
print(*sorted(name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))))
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"requests"}))
"""


def test_they_are_off() -> None:
    assert (Settings().traces, Settings().traces_ratio) == (TraceExport.OFF, 1.0)
    assert role_tracer(Settings(), "api") is None


def test_while_they_are_off_no_role_loads_what_would_export_them() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_ROLES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["None", "", ""], done.stderr


def test_a_missing_package_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "oldhost_sync.traces.otlp_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"install oldhost-sync\[traces\], or set SYNC_TRACES=off") as told:
        role_tracer(load_settings(traces="otlp"), "api")
    known = explain(told.value)
    assert known is not None
    assert known.exit_code == WRONG


@pytest.mark.parametrize("wrong", [{"traces": "jaeger"}, {"traces_ratio": 1.1}, {"traces_ratio": -0.1}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="SYNC_TRACES"):
        load_settings(**wrong)


def test_a_role_that_up_starts_has_the_same() -> None:
    told = load_settings(traces="otlp", traces_ratio=0.0).to_environment()
    assert (told["SYNC_TRACES"], told["SYNC_TRACES_RATIO"]) == ("otlp", "0.0")


def test_a_span_that_can_t_be_made_stops_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> list[object]:
        raise ValueError("no such thing")

    tracer = Tracer(1.0, KeptSpans())
    tracer.record(fails)  # type: ignore[arg-type]
    tracer.record(fails)  # type: ignore[arg-type]
    assert [record.message for record in caplog.records] == ["a span could not be made; others may be missing, too"]
