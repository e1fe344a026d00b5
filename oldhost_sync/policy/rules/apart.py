"""Changes that wait apart: OldHost refused their operations without using the nonce, so the others go first with it.

The entity of such a change sends nothing for a while (I4); the pauses grow, so that the tries, each of which may cost a
settle time, take less than a tenth of OldHost's time. The ledger counts the tries and makes a dead letter of a change
that was refused again and again, while OldHost took other operations.
"""

from __future__ import annotations

# The pause after the first try, the second, and so on; the last one for all further tries.
PAUSES_MS = (15_000, 60_000, 120_000, 240_000, 480_000, 900_000)
# What counts as one row of tries: those of an entity since it last took an operation, and no longer ago than this.
REMEMBERED_SECONDS = 1800
# Before the first try of an LWW change whose entity was refused twice or more: another payload, perhaps the same fault.
INHERITED_MS_MAX = 240_000
# So many tries, in each of which another operation then got the nonce, prove that it is this operation that OldHost
# refuses. Otherwise it may be OldHost that refuses all, and only many tries end it.
TRIES_MAX = 3
TRIES_ALONE_MAX = 8


def pause_ms(tries: int) -> int:
    """How long a change waits apart after so many tries."""
    return PAUSES_MS[min(max(tries, 1), len(PAUSES_MS)) - 1]


def pause_before_ms(tries: int, *, own: bool, inherits: bool) -> int:
    """How long after the last try of its entity a change waits. `own`: it was among them; `inherits`: it is LWW, so it
    brings the entity's state once more, and must not begin at the shortest pause again.
    """
    if own:
        return pause_ms(tries)
    return min(pause_ms(tries), INHERITED_MS_MAX) if inherits and tries > 1 else 0


def is_given_up(tries: int, passed: int) -> bool:
    """Whether an operator must decide. `passed`: after how many of the tries another operation used the nonce."""
    return passed >= TRIES_MAX - 1 or tries >= TRIES_ALONE_MAX
