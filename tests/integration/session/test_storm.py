"""Two senders at once, as the writer has them, while OldHost misbehaves in every way of its protocol."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from oldhost_sync.oldhost.session import Session
from oldhost_sync.policy.machine.events import SendEnded
from tests.integration.session.stage import Stage, outcomes, send

pytestmark = pytest.mark.mariadb

FAULTS: list[dict[str, Any]] = [
    {"name": "drop_before", "probability": 0.04},
    {"name": "drop_after", "probability": 0.04},
    {"name": "cut_reply", "probability": 0.04},
    {"name": "garbage", "probability": 0.04},
    {"name": "busy", "probability": 0.05, "retry_after": 0.01},
    {"name": "reject", "label": "unconsumed", "probability": 0.04, "consume": False},
    {"name": "reject", "label": "consumed", "probability": 0.04},
]


class Writer:
    """Two threads take sends in turn, as the workflow gives them out, until the session ends or all is sent."""

    def __init__(self, session: Session, sends: list[list[int]]) -> None:
        self._session = session
        self._sends = iter(enumerate(sends, start=1))
        self._lock = threading.Lock()
        self.reports: list[SendEnded] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._send_in_turn) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send_in_turn(self) -> None:
        while self._session.is_open:
            with self._lock:
                sequence, ids = next(self._sends, (0, []))
            if not ids:
                return
            sent = send(self._session, ids, sequence)
            with self._lock:
                self.reports.append(sent)


def in_sends(ids: list[int]) -> list[list[int]]:
    sizes = count()
    sends = []
    while ids:
        size = 1 + next(sizes) % 4
        sends.append(ids[:size])
        ids = ids[size:]
    return sends


def test_whatever_oldhost_does_each_change_is_applied_once(stage: Stage) -> None:
    stage.control(lambda controls: controls.latency({"latency_ms": 3}))
    ids = [stage.world.record(f"u{number}", payload={"n": number}) for number in range(150)]
    for fault in FAULTS:
        stage.fault(**fault)
    sessions = 0
    while waiting := [fate for fate in stage.world.ledger.fates(ids) if fate.outcome in {"WAITING", "BOUND"}]:
        opened = stage.opening()
        bound = [ref[0] for ref in opened.event.bound]
        todo = bound + [fate.change_id for fate in waiting if fate.change_id not in bound]
        recovered = {fate.change_id for fate in opened.event.fates}
        writer = Writer(opened.session, in_sends([one for one in todo if one not in recovered]))
        writer.run()
        opened.session.close("next")
        sessions += 1
        assert sessions < 150, "it does not converge"
    assert sessions > 5, "nothing went wrong"
    check(stage, ids)


def check(stage: Stage, ids: list[int]) -> None:
    stage.check_clean()
    used = [
        entry for entry in stage.control(lambda controls: controls.journal(0)) if entry.expected_nonce > entry.nonce
    ]
    assert [entry.nonce for entry in used] == list(range(501, 501 + len(used)))
    applied = stage.applied_ids()
    assert len(set(applied)) == len(applied)
    fates = dict(zip(ids, outcomes(stage.world.ledger.fates(ids)), strict=True))
    lost_rejections = {change_id for change_id, fate in fates.items() if fate == "APPLIED"} - set(applied)
    rejected = {change_id for _, outcome, change_id in stage.journal() if outcome == "rejected"}
    assert lost_rejections <= rejected, "only a rejection whose answer was lost looks like an application"
    assert {change_id for change_id, fate in fates.items() if fate == "DEAD"} <= rejected - set(applied)
