"""What every rival needs: a session on OldHost, opened again by the one recovery path whenever it is lost."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta

from sqlalchemy.engine import Engine

from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.recovery import Ended, Opened, Opening
from oldhost_sync.oldhost.session import Session
from oldhost_sync.policy.machine.events import OpeningPostponed
from oldhost_sync.roles.worker import session_limits
from oldhost_sync.settings import Settings
from oldhost_sync.store.ledger.maria_ledger import MariaLedger


class Holding:
    """Gives an open session; whoever loses it asks again."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine
        self._session: Session | None = None
        self._reply_timeout = ReplyTimeout()
        self.bound: list[int] = []  # what recovery wants sent first

    def session(self) -> Session:
        while self._session is None or not self._session.is_open:
            outcome = self._open()
            if isinstance(outcome, Opened):
                self._session = outcome.session
                self.bound = [ref[0] for ref in outcome.event.bound]
            elif isinstance(outcome, OpeningPostponed):
                time.sleep(outcome.wait_ms / 1000)
            else:
                raise SystemExit(f"halted: {outcome.message}")
        return self._session

    def send(self, change_ids: list[int]) -> None:
        """Bound ones first, then these; one that would overtake older ones of its entity goes after them."""
        session = self.session()
        if self.bound:
            session.send(self.bound, lambda: None)
            self.bound = []
        sent = session.send(change_ids, lambda: None)
        if sent.older:
            session.send([*(ref[0] for ref in sent.older), *change_ids], lambda: None)

    def _open(self) -> Ended:
        host = self._settings.host
        limits = session_limits(self._settings.of_host(host))
        address = parse_address(self._settings.urls_by_host()[host])
        return Opening(
            ledger=MariaLedger(self._engine, host, timedelta(seconds=limits.settle_seconds)),
            connect=lambda: Connector(address, HTTP, time.monotonic).connect(lambda: None),
            owner=f"rival-{os.getpid()}",
            condition=threading.Condition(),
            clock=time.monotonic,
            limits=limits,
            heartbeat=lambda: None,
            reply_timeout=self._reply_timeout,
        ).open()
