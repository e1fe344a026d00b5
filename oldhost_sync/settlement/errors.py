"""Why settlement stops: each error says what is wrong and what to do. Until then nothing is pruned."""

from __future__ import annotations


class SettlementError(Exception):
    """An operator has to correct it; a retry helps only after that."""


class FolderUnusable(SettlementError):  # noqa: N818 - it says what is wrong
    """The folder does not exist, or is not the one that the last files were written to."""


class FileDamaged(SettlementError):  # noqa: N818 - as above
    """A settlement file was changed or damaged."""


class LedgerDiffers(SettlementError):  # noqa: N818 - as above
    """The ledger has a record that the day's file lacks."""
