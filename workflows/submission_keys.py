"""Idempotency keys for changes that arrived without one: reading the same message again gives the same key."""

from __future__ import annotations

from hashlib import sha256


def signal_key(original_run_id: str, place: int, data: bytes) -> str:
    """The key of a submission that arrived by signal: `place` counts the run's `submit_change` signals from 1, `data`
    is the signal's content.

    The digest distinguishes a signal that is in another one's place after a reset that left signals out.
    """
    return f"signal/{original_run_id}/{place}/{sha256(data).hexdigest()[:12]}"


def update_key(update_id: str, change: object) -> str:
    """The key of a keyless change that arrived by update: a repeated update, in any run, is the same change."""
    asked = f"{update_id}\n{change!r}".encode(errors="surrogatepass")
    return f"update/{sha256(asked).hexdigest()[:40]}"
