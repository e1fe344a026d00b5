"""An operator's decision about a halt that the writer has not acted on yet: OldHost can't be asked, or no session was
opened since the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.plain_text import instant
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.columns import UtcDateTime

# The alert stays open until a session is opened.
_HALT = text(
    "SELECT l.halted, l.resolve_mode, a.created_at FROM nonce_ledger l LEFT JOIN alerts a ON a.host = l.host "
    "AND a.kind = 'halted' AND a.is_open = 1 WHERE l.host = :host ORDER BY a.id LIMIT 1"
).columns(created_at=UtcDateTime())


@dataclass(frozen=True, slots=True)
class HaltDecision:
    """`mode`: adopt or resend."""

    operator: str
    mode: str
    decided_at: datetime

    @property
    def said(self) -> str:
        """For people."""
        decided = f"{self.operator} decided about the halt at {instant(self.decided_at)}: {self.mode}."
        return f"{decided} The writer acts on it as soon as it can ask OldHost."


def read_decision(connection: Connection, host: str) -> HaltDecision | None:
    """The decision that is still to be carried out, if there is one."""
    halt = connection.execute(_HALT, {"host": host}).one_or_none()
    if halt is None or (halt.resolve_mode is None and (halt.halted is not None or halt.created_at is None)):
        return None
    for act in list_acts(connection, host, action="resolve", limit=1):
        if halt.resolve_mode is not None or act.created_at >= halt.created_at:
            return HaltDecision(act.operator, act.detail["mode"], act.created_at)
    return None
