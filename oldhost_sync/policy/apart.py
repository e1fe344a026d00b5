"""Changes that wait apart: OldHost refused their operations without using the nonce, so the others go first with it.

The entity of such a change sends nothing for a while (I4); the pauses grow, so that the tries, each of which may cost a
settle time, take less than a tenth of OldHost's time. The ledger counts the tries and makes a dead letter of a change
that was refused again and again, while OldHost took other operations.
"""

from __future__ import annotations

# The pause after the first try, the second, and so on; the last one for all further tries.
PAUSES_MS = (15_000, 60_000, 120_000, 240_000, 480_000, 900_000)
# So many tries, in each of which another operation then got the nonce, prove that it is this operation that OldHost
# refuses. Otherwise it may be OldHost that refuses all, and only many tries end it.
TRIES_MAX = 3
TRIES_ALONE_MAX = 8


def pause_ms(tries: int) -> int:
    """How long a change waits apart after so many tries."""
    return PAUSES_MS[min(max(tries, 1), len(PAUSES_MS)) - 1]


def is_given_up(tries: int, passed: int) -> bool:
    """Whether an operator must decide. `passed`: after how many of the tries another operation used the nonce."""
    return passed >= TRIES_MAX - 1 or tries >= TRIES_ALONE_MAX
