"""Hosts of other kinds than OldHost: what each tells, what a number gets that comes again, and how it counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_simulator import Config, Simulator
from oldhost_simulator.behaviour import REPEATED, Behaviour
from oldhost_simulator.call import Call
from oldhost_simulator.faults import Switchboard
from oldhost_simulator.host import Decision, Fact, Host, fact_from_json, fact_to_json
from oldhost_simulator.process import config_of, parser
from oldhost_simulator.verdicts import Applied, Expected, Gap, Malformed, Outcome, Ready, Rejected, Replay, Verdict
from tests.simulator.client import AdminClient, operation
from tests.simulator.frame_line import FrameLine

OFF = Switchboard(seed=0)


class Kind:
    """A host of some kind, and its client. `now`: epoch seconds."""

    def __init__(self, first_nonce: int = 501, **kind: Any) -> None:
        self.host = Host(first_nonce=first_nonce, behaviour=Behaviour(**kind))
        self.faults = Switchboard(seed=0)
        self.now = 0.0
        self.facts: list[Fact] = []
        self.host.started(self.now)

    def call(self, call: Call) -> Verdict:
        for fact in list(self.host.due(self.now)):
            self._apply(fact)
        decision: Decision = self.host.decide(call, self.now, self.faults)
        for fact in decision.facts:
            self._apply(fact)
        return decision.verdict

    def _apply(self, fact: Fact) -> None:
        self.facts.append(fact)
        self.host.apply(fact)

    def sync(self, number: int, change: int = 1) -> Verdict:
        return self.call(Call("sync", self.now, 1, nonce=number, body=operation(change), raw_sha256=""))

    def ask(self) -> Verdict:
        return self.call(Call("ask", self.now, 1))

    def logon(self) -> Verdict:
        return self.call(Call("logon", self.now, 1))

    def outcome(self, number: int | None = None, key: str | None = None) -> Verdict:
        return self.call(Call("outcome", self.now, 1, nonce=number, key=key))

    def reject(self, **parameters: Any) -> None:
        self.faults.switch_on({"name": "reject", "reason": "no", "next": 1, **parameters})

    def applied(self) -> list[int]:
        return [entry.nonce for entry in self.host.journal if entry.outcome == "applied"]


# ------------------------------------------------------------------------------------------------ what it expects


def test_one_that_tells_no_number_says_none_in_any_answer() -> None:
    host = Kind(expected="never")
    assert host.ask() == Malformed("it does not tell which number it expects")
    assert host.sync(501) == Applied(501, None)
    assert host.sync(501) == Replay(501, None, 900)


@pytest.mark.parametrize(("tells", "expected"), [(True, 501), (False, None)])
def test_a_logon_tells_the_number_or_does_not(tells: bool, expected: int | None) -> None:
    assert Kind(expected="never", logon_expected=tells).logon() == Ready(expected, "0.000")


def test_only_one_whose_rejections_use_no_number_proves_applied() -> None:
    with pytest.raises(ValueError, match="rejection_uses"):
        Behaviour(expected="applied")
    host = Kind(expected="applied", rejection_uses="no")
    host.reject()
    assert host.sync(501) == Rejected(501, "no", 501, used=None)
    assert host.sync(501) == Applied(501, 502)


@pytest.mark.parametrize(
    ("uses", "consume", "verdict"),
    [
        ("yes", False, Rejected(501, "no", 502, used=None)),
        ("no", True, Rejected(501, "no", 501, used=None)),
        ("says", True, Rejected(501, "no", 502, used=True)),
        ("says", False, Rejected(501, "no", 501, used=False)),
    ],
)
def test_a_rejection_uses_the_number_as_the_kind_wants_it(uses: str, consume: bool, verdict: Verdict) -> None:
    host = Kind(rejection_uses=uses)
    host.reject(consume=consume)
    assert host.sync(501) == verdict


def test_one_that_lags_tells_what_it_wanted_a_while_ago() -> None:
    host = Kind(lags_seconds=2)
    for host.now in (1.0, 2.0, 3.0):
        host.sync(host.host.expected_nonce)
    assert [host.ask(), host.logon()] == [Expected(502), Ready(502, "0.000")]
    host.now = 5.0
    assert host.ask() == Expected(504)


def test_one_that_takes_gaps_goes_on_behind_them() -> None:
    host = Kind(gapless=False)
    assert host.sync(505) == Applied(505, 506)
    assert host.sync(503) == Replay(503, 506, 900)


# ---------------------------------------------------------------------------------------------- repeated numbers


def test_a_used_number_is_only_refused() -> None:
    host = Kind(repeated="refused")
    host.sync(501)
    assert host.sync(501) == Replay(501, 502, None)
    assert host.sync(502) == Applied(502, 503)


def test_the_last_answer_is_given_again_for_the_last_number_only() -> None:
    host = Kind(repeated="last_answer")
    host.sync(501, 1)
    host.reject()
    rejected = host.sync(502, 2)
    assert host.sync(502, 2) == rejected == Rejected(502, "no", 503, used=True)
    assert host.sync(501, 1) == Replay(501, 503, None)
    assert host.applied() == [501]


def test_the_last_answer_is_forgotten_in_a_restart_and_the_incarnation_is_another() -> None:
    host = Kind(repeated="last_answer")
    before = host.logon()
    host.sync(501)
    host.now = 7.0
    host.host.started(host.now)
    assert host.logon() != before
    assert host.sync(501) == Replay(501, 502, None)


def test_the_careless_one_does_it_twice() -> None:
    host = Kind(repeated="done_twice", expected="never")
    for number in (501, 502, 501):
        assert host.sync(number) == Applied(number, None)
    assert host.applied() == [501, 502, 501]
    assert host.sync(503) == Applied(503, None)


# ------------------------------------------------------------------------------------------------------ outcomes


def outcomes(kind: str) -> Kind:
    """Change 1 applied, change 2 rejected, change 3 applied."""
    host = Kind(outcome=kind, expected="never")
    host.sync(501, 1)
    host.reject()
    host.sync(502, 2)
    host.sync(503, 3)
    return host


def test_an_outcome_is_told_by_number() -> None:
    host = outcomes("by_number")
    assert host.outcome(501) == Outcome("applied", 501, "key-1")
    assert host.outcome(502) == Outcome("rejected", 502, "key-2", "no", used=True)
    assert host.outcome(504) == Outcome("not_taken", 504)
    assert host.outcome(500) == Outcome("unknown", 500)
    assert isinstance(host.outcome(key="key-1"), Malformed)


def test_an_outcome_is_told_by_key() -> None:
    host = outcomes("by_id")
    assert host.outcome(key="key-3") == Outcome("applied", 503, "key-3")
    assert host.outcome(key="key-4") == Outcome("not_taken", None, "key-4")
    assert isinstance(host.outcome(501), Malformed)


def test_only_the_last_outcome_is_told() -> None:
    assert Kind(outcome="last").outcome() == Outcome("not_taken")
    assert outcomes("last").outcome() == Outcome("applied", 503, "key-3")


def test_no_outcome_is_told() -> None:
    assert isinstance(outcomes("never").outcome(501), Malformed)


def test_what_a_restored_backup_has_undone_was_not_taken() -> None:
    host = outcomes("by_id")
    host._apply(host.host.restore(1.0, 502))
    assert host.outcome(key="key-1") == Outcome("applied", 501, "key-1")
    assert host.outcome(key="key-2") == Outcome("not_taken", None, "key-2")


# ----------------------------------------------------------------------------------------- numbers that come again


def test_after_the_highest_number_comes_the_lowest() -> None:
    host = Kind(first_nonce=94, modulus=96, lowest=32, expected="used")
    assert [host.sync(number) for number in (94, 95, 32)] == [Applied(94, 95), Applied(95, 32), Applied(32, 33)]
    assert host.applied() == [94, 95, 96]
    assert host.sync(95) == Replay(95, 33, 900)


def test_around_the_circle_the_nearer_side_decides_between_a_gap_and_a_replay() -> None:
    host = Kind(first_nonce=40, modulus=96, lowest=32, repeated="refused")
    assert isinstance(host.sync(41), Gap)
    assert isinstance(host.sync(39), Replay)
    assert isinstance(host.sync(95), Replay)
    assert host.sync(96) == host.sync(31) == Malformed("numbers go from 32 to 95")


def test_numbers_begin_anew_with_each_logon() -> None:
    host = Kind(first_nonce=1, resets="session", lowest=1)
    host.sync(1)
    host.sync(2)
    assert host.logon() == Ready(1, "0.000")
    assert host.sync(3) == Gap(3, 1)
    assert host.sync(1) == Applied(1, 2)
    assert host.applied() == [1, 2, 3]


def test_numbers_begin_anew_each_day() -> None:
    host = Kind(first_nonce=1, resets="day", day_seconds=100, lowest=1)
    host.now = 99.0
    assert [host.sync(1), host.ask()] == [Applied(1, 2), Expected(2)]
    host.now = 100.0
    assert [host.ask(), host.sync(1), host.sync(2)] == [Expected(1), Applied(1, 2), Applied(2, 3)]
    host.now = 299.0
    assert host.ask() == Expected(1)


steps = st.lists(
    st.tuples(st.sampled_from(["right", "right", "right", "old", "high", "logon", "reject"]), st.integers(0, 60)),
    max_size=60,
)


@given(
    steps,
    st.sampled_from(REPEATED),
    st.sampled_from(["never", "session", "day"]),
    st.sampled_from([None, 8, 96]),
    st.booleans(),
)
def test_nonces_rise_and_the_facts_rebuild_the_host_whatever_its_kind(
    moves: list[tuple[str, int]], repeated: str, resets: str, modulus: int | None, gapless: bool
) -> None:
    kind: dict[str, Any] = {"repeated": repeated, "resets": resets, "modulus": modulus, "gapless": gapless, "lowest": 3}
    host = Kind(first_nonce=3, day_seconds=500, **kind)
    for change, (move, seconds) in enumerate(moves):
        host.now += seconds
        before = host.host.expected_nonce
        number = host.host.number(before)
        if move == "reject":
            host.reject()
        if move == "logon":
            host.logon()
        else:
            host.sync(max(3, number + {"old": -1, "high": 1}.get(move, 0)), change)
        assert host.host.expected_nonce >= before
        if modulus is not None:
            assert 3 <= host.host.number(host.host.expected_nonce) < modulus
    rebuilt = Host(first_nonce=3, behaviour=host.host.behaviour)
    for fact in host.facts:
        rebuilt.apply(fact_from_json(fact_to_json(fact)))
    for nonce in range(3, host.host.expected_nonce + 2):
        assert rebuilt.number(nonce) == host.host.number(nonce)
    assert (rebuilt.expected_nonce, rebuilt.journal) == (host.host.expected_nonce, host.host.journal)
    if repeated != "done_twice" and gapless:
        used = [entry.nonce for entry in rebuilt.journal if entry.expected_nonce > entry.nonce]
        assert used == list(range(3, 3 + len(used)))


# ------------------------------------------------------------------------------------------------------ a process


def test_the_options_choose_the_kind() -> None:
    given_ = ["--dialect", "frame", "--expected", "applied", "--outcome", "by_id", "--repeated", "last_answer"]
    given_ += ["--rejection-uses", "no", "--takes-gaps", "--resets", "day", "--day-seconds", "60", "--modulus", "96"]
    given_ += ["--lowest", "32", "--lags-seconds", "2", "--silent-logon", "--no-incarnation", "--first-nonce", "32"]
    config = config_of(parser().parse_args(given_))
    assert config.dialect == "frame"
    assert config.behaviour == Behaviour(
        expected="applied",
        outcome="by_id",
        repeated="last_answer",
        rejection_uses="no",
        gapless=False,
        resets="day",
        day_seconds=60,
        modulus=96,
        lowest=32,
        lags_seconds=2,
        logon_expected=False,
        incarnation=False,
    )


def test_without_options_it_is_oldhost() -> None:
    assert config_of(parser().parse_args(["--port", "0"])).behaviour == Behaviour()


@pytest.mark.parametrize(
    "wrong",
    [{"expected": "maybe"}, {"modulus": 33, "lowest": 32}, {"lowest": -1}, {"day_seconds": 0}, {"lags_seconds": -1}],
)
def test_a_kind_that_can_not_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Behaviour(**wrong)


def test_the_first_number_is_not_below_the_lowest() -> None:
    with pytest.raises(ValueError, match="from 32 on"):
        Config(behaviour=Behaviour(lowest=32))
    with pytest.raises(ValueError, match="dialect"):
        Config(dialect="telex")


def test_numbers_go_on_behind_a_reset_after_a_restart(start: Callable[..., Simulator], tmp_path: Path) -> None:
    config = {"dialect": "frame", "state_file": tmp_path / "state", "behaviour": Behaviour(repeated="last_answer")}
    with Simulator(Config(latency_ms=1, **config)) as first, FrameLine(first.url) as line:  # type: ignore[arg-type]
        assert [line.sync(number)["type"] for number in (1, 2)] == ["applied", "applied"]
        assert AdminClient(first.admin_url).post("/actions/reset") == {"number": 0}
        assert line.sync(0) == {"type": "applied", "number": 0, "expected": 1}
        assert line.sync(0) == {"type": "applied", "number": 0, "expected": 1}
        incarnation = line.ready["incarnation"]
    with FrameLine(start(**config).url) as line:
        assert line.expected() == 1
        assert line.ready["incarnation"] != incarnation
        assert line.sync(0)["type"] == "used"


def test_a_restart_by_the_admin_ends_the_connection_and_the_incarnation(start: Callable[..., Simulator]) -> None:
    simulator = start(dialect="frame")
    with FrameLine(simulator.url) as line:
        said = AdminClient(simulator.admin_url).post("/actions/restart")
        assert line.receive_bytes() == b""
        assert said["incarnation"] != line.ready["incarnation"]
    with FrameLine(simulator.url) as line:
        assert line.ready["incarnation"] == said["incarnation"]
