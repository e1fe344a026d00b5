"""The idempotency keys of changes that came without one: the same for whoever comes upon the same message again."""

from __future__ import annotations

from hashlib import sha256


def signal_key(original_run_id: str, place: int, data: bytes) -> str:
    """The key of a submission that came by signal: `place` counts the run's `submit_change` signals from 1, `data` is
    what came.

    With the digest a signal that took another's place (a reset that leaves signals out) is not taken for it.
    """
    return f"signal/{original_run_id}/{place}/{sha256(data).hexdigest()[:12]}"


def update_key(update_id: str, change: object) -> str:
    """The key of a keyless change that came by update: the same update again, in whichever run, is the same change."""
    asked = f"{update_id}\n{change!r}".encode(errors="surrogatepass")
    return f"update/{sha256(asked).hexdigest()[:40]}"
