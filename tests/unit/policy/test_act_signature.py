"""The API's signature of an act: whoever has no key can't make one, and one act's serves no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oldhost_sync.policy.rules.operator_act import VALID_MS, Actor, ActSignature, Channel, OperatorAct, actor_of, sign

KEY, OTHER = "k" * 32, "o" * 32
NOW = 1_800_000_000_000
ACT = OperatorAct("oldhost", "flush", "anna", "the owner waits", entity_type="unit", entity_id="12B", channel="api")


def signed(act: OperatorAct = ACT, key: str = KEY) -> OperatorAct:
    return replace(act, signature=sign(act, key, now_ms=NOW, nonce="n1"))


def test_a_signed_act_has_its_channel_and_a_verified_name() -> None:
    for channel in (Channel.API, Channel.CONSOLE):
        act = signed(replace(ACT, channel=channel))
        assert actor_of(act, [KEY], now_ms=NOW) == Actor("anna", channel, verified=True)


def test_what_the_workflow_adds_is_not_signed() -> None:
    carried = replace(signed(), decision_id="d", in_doubt=[7])
    assert actor_of(carried, [KEY], now_ms=NOW).verified


def test_the_halt_that_a_decision_names_is_signed() -> None:
    act = signed(replace(ACT, epoch=3))
    assert actor_of(act, [KEY], now_ms=NOW).verified
    assert not actor_of(replace(act, epoch=0), [KEY], now_ms=NOW).verified


@pytest.mark.parametrize(
    "other",
    [
        {"host": "north"},
        {"action": "pause"},
        {"operator": "bob"},
        {"reason": "another"},
        {"entity_id": "9"},
        {"entity_id": None},
        {"change_id": 7},
        {"mode": "adopt"},
        {"epoch": 3},
        {"channel": "console"},
        {"channel": "command-line"},
        {"signature": replace(signed().signature or ActSignature(), nonce="n2")},
        {"signature": replace(signed().signature or ActSignature(), signed_at_ms=NOW + 1)},
        {"signature": ActSignature("n1", NOW, "\ud800")},
    ],
    ids=repr,
)
def test_a_signature_serves_no_other_act(other: dict[str, object]) -> None:
    actor = actor_of(replace(signed(), **other), [KEY], now_ms=NOW)  # type: ignore[arg-type]
    assert (actor.verified, actor.doubt) == (False, "the signature does not fit")
    assert actor.channel in {Channel.TEMPORAL, Channel.COMMAND_LINE}


@pytest.mark.parametrize("after_ms", [VALID_MS + 1, -VALID_MS - 1])
def test_a_signature_is_valid_for_minutes(after_ms: int) -> None:
    actor = actor_of(signed(), [KEY], now_ms=NOW + after_ms)
    assert (actor.channel, actor.verified) == (Channel.TEMPORAL, False)
    assert "ago" in actor.doubt
    assert actor_of(signed(), [KEY], now_ms=NOW + VALID_MS).verified


def test_an_older_key_is_checked_too_and_no_other() -> None:
    assert actor_of(signed(key=OTHER), [KEY, OTHER], now_ms=NOW).verified
    assert not actor_of(signed(key=OTHER), [KEY], now_ms=NOW).verified
    assert "SYNC_ACT_KEYS" in actor_of(signed(), [], now_ms=NOW).doubt


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ("", "temporal"),
        ("api", "temporal"),
        ("console", "temporal"),
        ("command-line", "command-line"),
        ("x", "temporal"),
    ],
)
def test_an_unsigned_act_has_no_verified_name_whatever_channel_it_says(said: str, recorded: str) -> None:
    expected = Actor("anna", Channel(recorded), verified=False, doubt="not signed")
    assert actor_of(replace(ACT, channel=said), [KEY], now_ms=NOW) == expected


def test_the_writer_s_own_halt_is_nobody_s() -> None:
    halt = OperatorAct("oldhost", "halt", "writer", "foreign writes")
    assert actor_of(halt, [KEY], now_ms=NOW) == Actor("writer", Channel.WRITER, verified=None)
