"""OldHost as another company would have built it: one connection, one thread, a strict nonce, a ban.

It implements OldHost's protocol (docs/protocol.md) on a real socket and is independent of the product that talks to it.
`python -m oldhost_simulator` runs it as a process; `Simulator(Config())` runs it inside a test.
"""

from oldhost_simulator.simulator import Config, Simulator

__all__ = ["Config", "Simulator"]
