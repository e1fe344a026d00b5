"""What every ledger must do: one suite for MariaDB's and for the simulation's. Subclass it and give it a `world`."""

from __future__ import annotations

from tests.conformance.ledger_answers import Answers
from tests.conformance.ledger_evidence import Evidences
from tests.conformance.ledger_fates import Fates
from tests.conformance.ledger_halts import Halts
from tests.conformance.ledger_precedence import Precedences
from tests.conformance.ledger_reserving import Reserving
from tests.conformance.ledger_resolves import Resolves
from tests.conformance.ledger_sending import Sending
from tests.conformance.ledger_takeover import Takeover
from tests.conformance.ledger_withdrawal import Withdrawals
from tests.conformance.ledger_world import SETTLE_SECONDS

__all__ = ["SETTLE_SECONDS", "LedgerConformance"]


class LedgerConformance(
    Reserving, Precedences, Sending, Takeover, Halts, Resolves, Fates, Answers, Evidences, Withdrawals
):
    """The parts, each a concept of the ledger, on one world."""
