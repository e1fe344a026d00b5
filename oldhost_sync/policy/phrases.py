"""Numbers and times in texts for people, in the same form everywhere."""

from __future__ import annotations

from datetime import UTC, datetime


def quantity(count: int, one: str, many: str = "") -> str:
    """Like "1 change", "1,200 changes"; `many`: the plural, if it is not formed with an s ("emergencies")."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def instant(moment: datetime) -> str:
    """Like "2026-11-22 03:00:00 UTC"; the console reformats it like its other times (`console/words.py`)."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
