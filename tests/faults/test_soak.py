"""Level L5, short: one soak of under a minute. `make soak MINUTES=10` is the long one; a verdict
must be able to be bad."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults import checker, further_rules
from tests.faults.schedule import CALM_AFTER_SECONDS, NEMESES, plan
from tests.faults.soak import Soak, main

SEED = 4
SECONDS = 30.0


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.mariadb
@pytest.mark.temporal
@pytest.mark.timeout(300)
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    soak = Soak(tmp_path, SEED, SECONDS)
    good = soak.run()
    assert soak.verdict is not None
    print(soak.verdict.table())
    assert good, soak.verdict.table()
    assert len(soak.done) >= 5


def test_a_folder_of_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "oldhost.jsonl").touch()
    monkeypatch.setattr("sys.argv", ["soak", "--minutes", "0.01", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "holds another run's servers and journal" in capsys.readouterr().err


def test_the_further_nemeses_leave_calm_around_each_lock() -> None:
    mishaps = plan(7, 600, 3.5, NEMESES)
    locks = [mishap.at_s for mishap in mishaps if mishap.kind == "lock"]
    assert {mishap.kind for mishap in mishaps} >= {"lock", "clock", "ban", "end", "operate"}
    assert len(locks) > 5
    assert not [
        one for one in mishaps for at in locks if one.kind != "lock" and at <= one.at_s < at + CALM_AFTER_SECONDS
    ]


def test_a_calm_soak_rolls_often_in_its_first_half_and_lets_the_workers_live_through_the_second() -> None:
    rolls = [mishap.at_s for mishap in plan(7, 3600, 3.5, ("upgrades",), calm=True)]
    assert len(rolls) >= 6
    assert max(rolls) < 1800


def test_a_seed_names_one_schedule() -> None:
    assert plan(7, 300, 3.5) == plan(7, 300, 3.5)
    assert plan(7, 300, 3.5) != plan(8, 300, 3.5)


# ------------------------------------------------------------------------- a checker that can't say no is worth nothing


def change(
    change_id: int, event_type: str, priority_class: str, payload: dict[str, Any], **more: Any
) -> dict[str, Any]:
    row = {
        "id": change_id,
        "idempotency_key": f"k{change_id}",
        "entity_type": "unit",
        "entity_id": "U1",
        "event_type": event_type,
        "payload": payload,
        "priority_class": priority_class,
        "relayed_at": "then",
        "processed_at": "then",
        "outcome": "APPLIED",
        "superseded_by": None,
        "nonce": change_id,
        "error": None,
        "unproven": 0,
    }
    return row | more


def evidence() -> dict[str, Any]:
    """Three changes that went as they should, the last one signalled; somebody held another unit's rows meanwhile."""
    changes = [
        change(1, "booking_created", "TXN", {"n": 1}),
        change(2, "unit_status_changed", "LWW", {"status": "Clean"}),
        change(3, "guest_locked_out", "EMERGENCY", {"note": "signalled"}),
    ]
    bodies = [
        {name: row[name] for name in ("entity_type", "entity_id", "event_type", "payload", "idempotency_key")}
        | {"event_id": row["id"]}
        for row in changes
    ]
    journal = [
        {
            "outcome": "applied",
            "nonce": body["event_id"],
            "expected_nonce": body["event_id"] + 1,
            "body": body,
            "applied_at": 98.0 + body["event_id"],
        }
        for body in bodies
    ]
    receipts = [
        {
            "key": row["idempotency_key"],
            "state": "accepted",
            "change_id": row["id"],
            "payload": row["payload"],
            "priority_class": row["priority_class"],
            "entity_id": "U1",
            "answered_at": 100.5,
            "attempts": 1,
            "answers": [202],
        }
        for row in changes
    ]
    requests = [
        {"nonce": row["id"], "change_id": row["id"], "status": "APPLIED", "sends": 1, "answer": "applied", "body": b""}
        for row in changes
    ]
    for request, body in zip(requests, bodies, strict=True):
        request["body"] = json.dumps(body).encode()
    shadow = {
        "entity_type": "unit",
        "entity_id": "U1",
        "state": {
            "booking_created": {"n": 1},
            "unit_status_changed": {"status": "Clean"},
            "guest_locked_out": {"note": "signalled"},
        },
        "sync_status": "SYNCED",
        "newest_change_id": 3,
    }
    return {
        "receipts": receipts,
        "journal": journal,
        "stats": {"replays": 0, "gaps": 0, "bans": 0, "expected_nonce": 4, "connections": 1},
        "records": [
            {"entity_type": "unit", "entity_id": "U1", "event_type": body["event_type"], "body": body}
            for body in bodies
        ],
        "changes": changes,
        "requests": requests,
        "ledger": {"next_nonce": 4, "last_applied_nonce": 3, "epoch": 1, "halted": None},
        "shadow": [shadow],
        "audit": [],
        "signals": [{"note": "signalled", "key": None, "acknowledged": True}],
        "locks": [{"entity_id": "U2", "rows": 1, "from_at": 100.0, "until_at": 120.0}],
    }


def judged(spoil: Any = lambda _: None) -> checker.Verdict:
    found = copy.deepcopy(evidence())
    spoil(found)
    return checker.judge(checker.Evidence(**found))


def test_the_checker_finds_nothing_wrong_where_nothing_is() -> None:
    verdict = judged()
    assert verdict.good, verdict.table()


SPOILED: dict[str, Any] = {
    "replays at OldHost": lambda e: e["stats"].update(replays=1),
    "gaps at OldHost": lambda e: e["stats"].update(gaps=1),
    "bans nobody ordered": lambda e: e["stats"].update(bans=1),
    "holes in the nonces": lambda e: e["journal"][1].update(nonce=3),
    "losses": lambda e: e["journal"].pop(0),
    "duplicates": lambda e: e["journal"].append(e["journal"][0]),
    "order violations": lambda e: e["journal"].reverse(),
    "last states that differ": lambda e: e["records"].pop(1),
    "changes without a fate": lambda e: e["changes"][0].update(outcome=None),
    "fates that OldHost contradicts": lambda e: e["changes"][0].update(nonce=9),
    "answers without a row, rows without an answer": lambda e: e["receipts"].pop(0),
    "unknown ends": lambda e: e["receipts"][0].update(state="unknown"),
    "bytes that changed": lambda e: e["requests"][0].update(body=b"{}"),
    "books that do not balance": lambda e: e["changes"][0].update(outcome="SUPERSEDED", superseded_by=2),
    "shadow states that are wrong": lambda e: e["shadow"][0].update(sync_status="PENDING_SYNC"),
    "ledger": lambda e: e["requests"][0].update(status="SENT"),
    "signals not recorded exactly once (I13)": lambda e: e["signals"].append(
        {"note": "another", "key": "k", "acknowledged": True}
    ),
    "fields that differ": lambda e: e["journal"][1]["body"].update(payload={"status": "Dirty"}),
    "emergencies that waited for rows of others (I10)": lambda e: (
        e["receipts"][2].update(answered_at=101.0)
        or e["journal"][2].update(applied_at=110.0)
        or e["locks"][0].update(from_at=100.5)
    ),
}


@pytest.mark.parametrize("rule", SPOILED)
def test_the_checker_notices_each_violation_by_its_rule(rule: str) -> None:
    assert judged(SPOILED[rule]).violations[rule]


def test_an_emergency_that_was_rejected_and_retried_waited_for_an_operator() -> None:
    rule = "emergencies that waited for rows of others (I10)"

    def spoil(e: dict[str, Any]) -> None:
        SPOILED[rule](e)
        e["journal"].append({**e["journal"][2], "outcome": "rejected", "applied_at": None})

    assert not judged(spoil).violations[rule]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e["changes"].append(change(4, "x", "TXN", {"note": "signalled"})),
        lambda e: e["signals"][0].update(key="its own"),
    ],
    ids=["recorded twice", "recorded under another key"],
)
def test_a_signal_is_recorded_once_and_under_its_key(spoil: Any) -> None:
    assert judged(spoil).violations["signals not recorded exactly once (I13)"]


def sent_in_another_order(e: dict[str, Any]) -> None:
    """Change 5 says the unit is Dirty and was sent after change 6, which says Clean."""
    for change_id, cls, status in ((5, "TXN", "Dirty"), (6, "LWW", "Clean")):
        e["changes"].append(change(change_id, f"event_{cls}", cls, {"status": status}))
    for row in (e["changes"][-1], e["changes"][-2]):
        answered(e, row, "applied")


def answered(e: dict[str, Any], row: dict[str, Any], outcome: str) -> None:
    e["journal"].append(
        {"outcome": outcome, "nonce": row["nonce"], "expected_nonce": 0, "body": row | {"event_id": row["id"]}}
    )


def rejected(e: dict[str, Any], change_id: int, answer: str) -> None:
    e["changes"].append(change(change_id, "door_code_changed", "TXN", {}))
    answered(e, e["changes"][-1], "rejected")
    e["requests"].append(
        {"nonce": change_id, "change_id": change_id, "status": "", "sends": 1, "answer": answer, "body": b"{}"}
    )


FOUND = "unconfirmed: OldHost expected a later nonce, and its answer was lost"


@pytest.mark.parametrize(
    ("rejections", "is_excused"),
    [([], False), ([FOUND], False), (["no such guest"], True), ([FOUND, "no such guest"], True)],
)
def test_only_a_rejection_that_was_answered_excuses_another_order(rejections: list[str], is_excused: bool) -> None:
    def spoil(e: dict[str, Any]) -> None:
        sent_in_another_order(e)
        for change_id, answer in enumerate(rejections, start=7):
            rejected(e, change_id, answer)

    assert (judged(spoil).violations["fields that differ"] == []) is is_excused


def test_every_rule_has_a_violation_that_it_notices() -> None:
    assert list(judged().violations) == list(SPOILED)


def test_the_checker_imports_nothing_of_the_product() -> None:
    text = Path(checker.__file__).read_text() + Path(further_rules.__file__).read_text()
    for name in ("oldhost_sync", "workflows", "activities", "oldhost_simulator"):
        assert f"import {name}" not in text
        assert f"from {name}" not in text
