"""The ids of a change's trace: the same in every process, and a share of all changes that is the same everywhere."""

from __future__ import annotations

import subprocess
import sys

from oldhost_sync.traces.span import ChangeTrace
from tests.architecture.project_files import ROOT

MANY = [ChangeTrace.of("oldhost", change_id, 1_700_000_000_000) for change_id in range(1, 4001)]


def test_another_process_finds_the_same_trace() -> None:
    code = (
        "from oldhost_sync.traces.span import ChangeTrace; t = ChangeTrace.of('north', 7, 99); "
        "print(t.trace_id, t.span_id, t.span_of('relay'))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = ChangeTrace.of("north", 7, 99)
    assert told.split() == [str(ours.trace_id), str(ours.span_id), str(ours.span_of("relay"))]


def test_each_change_has_a_trace_of_its_own() -> None:
    named = {
        ChangeTrace.of(host, change_id, at)
        for host in ("north", "south")
        for change_id in (7, 8)
        for at in (99, 100)  # the database gave the id out again
    }
    assert len({trace.trace_id for trace in named}) == len({trace.span_id for trace in named}) == 8
    assert all(0 < trace.trace_id < 2**128 and 0 < trace.span_id < 2**64 for trace in named)


def test_spans_that_are_told_twice_have_the_same_id_and_others_have_not() -> None:
    trace = ChangeTrace.of("oldhost", 7, 99)
    assert trace.span_of("wait", 5) == trace.span_of("wait", 5)
    assert len({trace.span_id, trace.span_of("relay"), trace.span_of("wait", 5), trace.span_of("wait", 6)}) == 4


def test_a_ratio_of_none_traces_nothing_and_one_of_all_traces_all() -> None:
    assert not any(trace.is_sampled(0.0) for trace in MANY)
    assert all(trace.is_sampled(1.0) for trace in MANY)


def test_a_ratio_traces_that_share_of_the_changes_and_a_larger_one_these_too() -> None:
    tenth = {trace for trace in MANY if trace.is_sampled(0.1)}
    half = {trace for trace in MANY if trace.is_sampled(0.5)}
    assert 0.08 < len(tenth) / len(MANY) < 0.12
    assert 0.47 < len(half) / len(MANY) < 0.53
    assert tenth < half
