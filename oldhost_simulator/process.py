"""The simulator as a process: prints one JSON line with both addresses, then serves until it is stopped."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from oldhost_simulator.simulator import Config, Simulator
from oldhost_simulator.state_file import StateFileError


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="oldhost-sync simulator",
        description="Simulates OldHost: one connection, one thread, a strict nonce, a ban for a replay.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    options.add_argument("--host", default="127.0.0.1", help="address to listen on")
    options.add_argument("--port", type=int, default=9400, help="OldHost's port; 0 takes a free one")
    options.add_argument(
        "--admin-port", type=int, default=9401, help="port for faults, journal and counts; 0 takes a free one"
    )
    options.add_argument("--latency-ms", type=float, default=400.0, help="time for each request, in milliseconds")
    options.add_argument(
        "--jitter-ms", type=float, default=0.0, help="the latency varies by up to this much, up and down"
    )
    options.add_argument("--ban-seconds", type=float, default=900.0, help="length of the ban after a replay")
    options.add_argument("--state-file", type=Path, help="keeps nonce, records, journal and ban across a restart")
    options.add_argument("--seed", type=int, default=0, help="seed of the faults' probabilities and of the jitter")
    options.add_argument("--first-nonce", type=int, default=1, help="the first nonce that a new host expects")
    options.add_argument("--tls-cert", type=Path, help="speak TLS, with this certificate (PEM)")
    options.add_argument("--tls-key", type=Path, help="its key (PEM), if it is in a file of its own")
    options.add_argument("--client-ca", type=Path, help="let in only clients with this authority's certificate (PEM)")
    options.add_argument(
        "--authorization-file", type=Path, help="answer 401 to requests without this Authorization header (one line)"
    )
    options.add_argument(
        "--any-body",
        action="store_true",
        help="accept any JSON object, not only one with the fields of an operation",
    )
    return options


def config_of(given: argparse.Namespace) -> Config:
    """Raises ValueError for an invalid value."""
    values = {name: value for name, value in vars(given).items() if name != "any_body"}
    return Config(**values, check_operations=not given.any_body)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGINT or SIGTERM. Returns 0: stopped; 1: could not start, or crashed; 2: wrong options."""
    options = parser()
    given = options.parse_args(argv)
    try:
        config = config_of(given)
    except ValueError as error:
        options.error(str(error))
    simulator = Simulator(config)

    def end(_signum: int, _frame: FrameType | None) -> None:
        simulator.ended.put(None)

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, end)
    try:
        simulator.start()
    except (OSError, StateFileError) as error:
        sys.stderr.write(f"The simulator can't start on {config.host}: {error}\n")
        return 1
    sys.stdout.write(json.dumps({"oldhost": simulator.url, "admin": simulator.admin_url}) + "\n")
    sys.stdout.flush()
    simulator.ended.get()
    crashed = simulator.crash is not None
    simulator.stop()
    return 1 if crashed else 0
