"""The simulator as a process: prints one JSON line with both addresses, then serves until it is stopped."""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

from oldhost_simulator.behaviour import EXPECTED, OLDHOST, OUTCOMES, REJECTION_USES, REPEATED, RESETS, Behaviour
from oldhost_simulator.simulator import DIALECTS, Config, Simulator
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
    options.add_argument("--dialect", choices=DIALECTS, default="http", help="what it speaks: HTTP, or frames over TCP")
    _add_kinds_of_host(options.add_argument_group("another kind of host than OldHost"))
    return options


def _add_kinds_of_host(options: argparse._ArgumentGroup) -> None:
    options.add_argument(
        "--expected",
        choices=EXPECTED,
        default=OLDHOST.expected,
        help="what the number that it wants next proves of all before: nothing, as it does not tell it; that they are "
        "used; that they are applied (then with --rejection-uses no)",
    )
    options.add_argument(
        "--outcome", choices=OUTCOMES, default=OLDHOST.outcome, help="of which operation it tells what became of it"
    )
    options.add_argument(
        "--repeated", choices=REPEATED, default=OLDHOST.repeated, help="what an operation gets whose number was used"
    )
    options.add_argument(
        "--rejection-uses",
        choices=REJECTION_USES,
        default=OLDHOST.rejection_uses,
        help="whether a rejected operation uses its number; says: as the fault wants it, and the answer tells",
    )
    options.add_argument(
        "--takes-gaps", action="store_true", help="take a number that is too high, instead of refusing it"
    )
    options.add_argument(
        "--resets",
        choices=RESETS,
        default=OLDHOST.resets,
        help="begin to count anew: never, at each logon, or each day",
    )
    options.add_argument(
        "--day-seconds", type=float, default=OLDHOST.day_seconds, help="length of a day, for --resets day"
    )
    options.add_argument("--modulus", type=int, help="after the number before this one comes the lowest again")
    options.add_argument("--lowest", type=int, default=OLDHOST.lowest, help="the lowest number")
    options.add_argument(
        "--lags-seconds", type=float, default=OLDHOST.lags_seconds, help="tell the number that was wanted so long ago"
    )
    options.add_argument("--silent-logon", action="store_true", help="do not tell the wanted number after a logon")
    options.add_argument("--no-incarnation", action="store_true", help="do not tell one start of the host from another")


def config_of(given: argparse.Namespace) -> Config:
    """Raises ValueError for an invalid value."""
    values: dict[str, Any] = dict(vars(given))
    values["gapless"] = not values.pop("takes_gaps")
    values["logon_expected"] = not values.pop("silent_logon")
    values["incarnation"] = not values.pop("no_incarnation")
    behaviour = Behaviour(**{field.name: values.pop(field.name) for field in fields(Behaviour)})
    return Config(check_operations=not values.pop("any_body"), behaviour=behaviour, **values)


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
