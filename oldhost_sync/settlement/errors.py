"""Why settlement stops: each names what is wrong and what to do; retention waits meanwhile."""

from __future__ import annotations


class SettlementError(Exception):
    """The operator's to mend; trying again helps only after that."""


class FolderUnusable(SettlementError):  # noqa: N818 - it says what is wrong
    """The folder is not there, or is not the one that the last files were written to."""


class FileDamaged(SettlementError):  # noqa: N818 - as above
    """A settlement file is not as it was written."""


class LedgerDiffers(SettlementError):  # noqa: N818 - as above
    """The ledger has something that the day's file has not."""
