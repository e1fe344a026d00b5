"""Level L2, complete: no single fault, and no pair while an operation is in doubt, breaks a promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.exhaustive import odd_answers, rebuilds
from tests.exhaustive.cases import ambiguous_calls, numbered_calls, pair_cases, run_cases, single_cases
from tests.exhaustive.odd_answers import OddCase
from tests.exhaustive.rebuilds import RebuildCase
from tests.exhaustive.scenario import Case, play

WORKERS = os.cpu_count() or 1


def test_the_scenario_has_every_kind_of_step() -> None:
    verdict, scenario = play(Case(()))
    assert verdict.violations == []
    met = [
        "continue-as-new", "ban survived", "no-op", "superseded", "hold after a rejection", "settle wait",
        "rejection that did not consume its nonce", "ambiguous, found applied", "order inheritance used",
        "gave back after a rejection", "gave back what was reserved",
    ]  # fmt: skip
    assert [what for what in met if not verdict.sometimes[what]] == []
    assert {kind for kind, _ in scenario.faults.calls} == {
        "statement", "commit", "connect", "write", "read", "activity", "result", "signal", "row",
    }  # fmt: skip


def test_the_numbering_is_the_same_each_time() -> None:
    assert numbered_calls() == numbered_calls()
    assert ambiguous_calls()


def test_a_run_that_is_lost_and_rebuilt_between_a_relays_signal_and_its_mark_keeps_the_order() -> None:
    """The new run reads what is outstanding before the mark: it must not let the entity's newer change go first."""
    _, scenario = rebuilds.play(RebuildCase(-1, rebuilds.ENDED))
    calls = [number for number, (kind, who) in enumerate(scenario.faults.calls) if kind == "signal" and "relay" in who]
    assert calls
    for number in calls:
        assert rebuilds.play(RebuildCase(number, rebuilds.REBUILT_MEANWHILE))[0].violations == []


def test_a_run_whose_snapshot_was_left_behind_rebuilds_itself() -> None:
    verdict, scenario = rebuilds.play(RebuildCase(400, rebuilds.LEFT_BEHIND))
    assert verdict.violations == []
    assert verdict.sometimes["rebuilt from the database"]
    assert scenario.faults.lost


@pytest.mark.parametrize("refusal", odd_answers.REFUSALS)
def test_a_unit_is_refused_and_others_get_foreign_answers(refusal: str) -> None:
    verdict, _ = odd_answers.play(OddCase(refusal, -1, ""))
    assert verdict.violations == []
    assert verdict.sometimes["a change that waits apart"]
    assert verdict.sometimes["a used nonce with an unlisted answer: unsure"]


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "cases",
    [single_cases, pair_cases, rebuilds.cases, odd_answers.cases],
    ids=["singles", "pairs", "rebuilds", "odd answers"],
)
def test_every_case_keeps_every_promise(
    cases: Callable[[], Iterator[tuple[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    table = run_cases(cases(), WORKERS)
    with capsys.disabled():
        print()
        for line in table.lines():
            print(f"  {line}")
    failed = "\n".join(f"{one.case}: {one.violations[:1]}" for one in table.failed[:10])
    assert not table.failed, f"{len(table.failed)} failed:\n{failed}"
    assert table.complete
