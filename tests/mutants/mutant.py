"""One small wrong idea, as a patch of the product's text, and where it is expected to be found out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.levels import CONFORMANCE, EXHAUSTIVE, SIMULATION, UNIT, Level


@dataclass(frozen=True, slots=True)
class Patch:
    """In `path`, `old` (exactly once there) becomes `new`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`levels`: tried in this order until one kills it. `seeds`: how many the simulation plays."""

    name: str
    patches: tuple[Patch, ...]
    levels: tuple[Level, ...] = (SIMULATION, UNIT, CONFORMANCE, EXHAUSTIVE)
    seeds: int = 150
