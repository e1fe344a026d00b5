"""What each token used, minute by minute, for an hour: the API's processes add what they counted, and read the sum.

A ring buffer: a minute's row is overwritten an hour later. The minutes are by the database's clock, so that they are
the same for all processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection

MINUTES_KEPT = 60
_MINUTE = "UNIX_TIMESTAMP() DIV 60"
_COUNTED = ("requests", "changes", "emergencies", "refused")
_ADDED = ", ".join(f"{name} = IF(minute = VALUES(minute), {name}, 0) + VALUES({name})" for name in _COUNTED)
# `minute` is assigned last: the other assignments compare its old value.
_ADD = (
    f"INSERT INTO token_usage (host, token_name, slot, minute, {', '.join(_COUNTED)}) VALUES {{rows}} "
    f"ON DUPLICATE KEY UPDATE {_ADDED}, minute = VALUES(minute) RETURNING token_name, minute, {', '.join(_COUNTED)}"
)
_ROW = f"(%s, %s, ({_MINUTE}) MOD {MINUTES_KEPT}, {_MINUTE}, %s, %s, %s, %s)"
_SINCE = text(
    "SELECT token_name, CAST(SUM(requests) AS SIGNED), CAST(SUM(changes) AS SIGNED), CAST(SUM(emergencies) AS SIGNED), "
    "CAST(SUM(refused) AS SIGNED) FROM token_usage "
    f"WHERE host = :host AND minute > {_MINUTE} - :minutes GROUP BY token_name "
    "ORDER BY 5 DESC, 4 DESC, 3 DESC, 2 DESC, 1"
)
# Old rows stay only of tokens that are no longer used.
_FORGET = text(f"DELETE FROM token_usage WHERE host = :host AND minute <= {_MINUTE} - 1440")


@dataclass(frozen=True, slots=True)
class Usage:
    """The number of each. `refused`: requests that were answered 429."""

    requests: int = 0
    changes: int = 0
    emergencies: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What one token used."""

    token: str
    usage: Usage


def add_usage(connection: Connection, host: str, used: Mapping[str, Usage]) -> dict[str, tuple[int, Usage]]:
    """Add what each token used; returns for each the current minute (a number), and what all processes added in it."""
    rows = [(host, token, *_counts(usage)) for token, usage in sorted(used.items())]
    if not rows:
        return {}
    values = tuple(value for row in rows for value in row)
    found = connection.exec_driver_sql(_ADD.format(rows=", ".join([_ROW] * len(rows))), values)
    return {token: (int(minute), Usage(*counts)) for token, minute, *counts in found}


def usage_of_tokens(connection: Connection, host: str, minutes: int) -> list[TokenUsage]:
    """The usage in the last `minutes`, including the current one: most refusals first, then most used."""
    rows = connection.execute(_SINCE, {"host": host, "minutes": minutes})
    return [TokenUsage(token, Usage(*counts)) for token, *counts in rows]


def forget_old_usage(connection: Connection, host: str) -> None:
    """Delete rows that are a day old and were not overwritten."""
    connection.execute(_FORGET, {"host": host})


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.requests, usage.changes, usage.emergencies, usage.refused
