"""Many simulators in one process: `python -m bench.many_simulators COUNT LATENCY_MS` prints their addresses as JSON.

Each has its own port, thread and state, as OldHosts have; one process keeps fifty interpreters' memory off the machine.
"""

from __future__ import annotations

import json
import sys
import threading

from oldhost_simulator.simulator import Config, Simulator


def main(count: int, latency_ms: float) -> None:
    simulators = [Simulator(Config(latency_ms=latency_ms)) for _ in range(count)]
    for simulator in simulators:
        simulator.start()
    print(json.dumps([[simulator.url, simulator.admin_url] for simulator in simulators]), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
