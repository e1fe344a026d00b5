"""How long OldHost takes for a request: a latency plus or minus a uniform jitter, from its own seeded generator."""

import random


class Pace:
    def __init__(self, *, latency_ms: float, jitter_ms: float, seed: int) -> None:
        self.latency_ms = latency_ms
        self.jitter_ms = jitter_ms
        self._random = random.Random(f"pace {seed}")

    def next_seconds(self) -> float:
        if not self.jitter_ms:
            return self.latency_ms / 1000
        return max(0.0, self.latency_ms + self._random.uniform(-self.jitter_ms, self.jitter_ms)) / 1000
