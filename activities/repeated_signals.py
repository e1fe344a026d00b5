"""Which signals a reset run got again.

A reset run begins with a copy of its base run's history, up to the event that it was reset to. Then Temporal gives it
again what the base run had got after that event, and all signals of the runs that had followed, in their order. From
server 1.32 on each signal has a request id in the history, which the repetition has, too. Older servers write none
(tried: 1.29, 1.30, 1.31): there a repetition is known by where it stands in the history and by its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple


class Signal(NamedTuple):
    """One that a run got. `request_id`: "" from older servers. `given_again`: by the reset that began the run."""

    request_id: str
    content: bytes
    given_again: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """`digests`: of its signals' contents, in order. `given_again`: which of them stand where a reset gives signals
    again. `repeated`: which of them an earlier run had got.
    """

    original_run_id: str
    digests: list[bytes]
    given_again: list[bool]
    repeated: list[bool]


@dataclass(slots=True)
class RepeatedSignals:
    """What earlier runs got. Runs are added in the order in which they began."""

    _request_ids: dict[str, None] = field(default_factory=dict)
    _runs: list[_Run] = field(default_factory=list)

    def add(self, original_run_id: str, signals: Sequence[Signal], *, is_reset: bool) -> list[bool]:
        """For each signal of a further run: whether it is recorded with an earlier run.

        What a reset run has from its base run may be called either: it is in the same place, and so has the same key.
        """
        run = _Run(
            original_run_id,
            [blake2b(signal.content, digest_size=16).digest() for signal in signals],
            [signal.given_again for signal in signals],
            [signal.request_id in self._request_ids for signal in signals],
        )
        if is_reset:
            self._mark_given_again(run)
        self._request_ids.update((signal.request_id, None) for signal in signals if signal.request_id)
        self._runs.append(run)
        return run.repeated

    def _mark_given_again(self, run: _Run) -> None:
        """By content: what the base run had got from others, and what those got that followed it."""
        number = self._base_of(run)
        if number is None:
            return
        base = self._runs[number]
        at = len(base.digests)
        run.repeated[:at] = [one or other for one, other in zip(run.repeated, base.repeated, strict=False)]
        for later in self._runs[number + 1 :]:
            end = at + len(later.digests)
            follows = later.original_run_id != run.original_run_id
            if follows and all(run.given_again[at:end]) and run.digests[at:end] == later.digests:
                run.repeated[at:end] = [True] * len(later.digests)
                at = end

    def _base_of(self, run: _Run) -> int | None:
        """The run with the same original whose signals `run` has, all of them, first; the longest such."""
        bases = [
            number
            for number, earlier in enumerate(self._runs)
            if earlier.original_run_id == run.original_run_id and run.digests[: len(earlier.digests)] == earlier.digests
        ]
        return max(bases, key=lambda number: len(self._runs[number].digests), default=None)
