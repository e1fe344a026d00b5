"""Drivers: whether a host keeps what its driver claims, and what a test host is really like."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from oldhost_sync.cli.arguments import entity_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.driver_kit.host_check import ClaimFinding, Verdict, Way, check_host
from oldhost_sync.driver_kit.host_profile import hosts_table, simulator_options
from oldhost_sync.driver_kit.measurement import Bodies, HostMeasurement, NoCount
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.mapping import OLDHOST, ChangeContent, HostMapping, NotMapped
from oldhost_sync.environment import settings
from oldhost_sync.host_settings import PATHS, HostSettings
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import HostError, NoAccess, NoConnection, Silent
from oldhost_sync.oldhost.mapping_file import read_mapping
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.user_errors import WRONG, CliError

driver = typer.Typer(no_args_is_help=True, help="Whether a host keeps what its driver claims: ask it, or measure it.")

PAYLOAD = '{"status":"Clean"}'

Url = Annotated[str | None, typer.Argument(help="Its address. Default: that of SYNC_HOST, with all its settings.")]
Name = Annotated[str | None, typer.Option("--driver", help="The driver, instead of the one in the settings.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="KEY=VALUE", help="An option of the driver, as in the hosts file; may be repeated."
    ),
]


def add_to(app: typer.Typer) -> None:
    driver.command("check")(check)
    driver.command("measure")(measure)
    app.add_typer(driver, name="driver")


def check(url: Url = None, name: Name = None, option: Options = None, as_json: AsJson = False) -> None:
    """Log on and ask, twice, and compare with what the driver claims. Writes nothing.

    Exit code 1 when a claim is wrong. The host may take one connection only: pause its writer first.
    """
    host = _host(url, name, option)
    with _reached():
        findings = check_host(host.driver, host.way)
    wrong = sum(finding.verdict is Verdict.WRONG for finding in findings)
    if as_json:
        print_json([{"subject": f.subject, "claim": f.claim, "found": f.found, "verdict": f.verdict} for f in findings])
    else:
        _print(f"{host.url}, asked by driver {host.driver_name}; nothing was written there", findings)
        if any(finding.verdict is Verdict.OPEN for finding in findings) and not wrong:
            console().print("Of what is not checked, `oldhost-sync driver measure` shows some, on a test host.")
    if wrong:
        claims = f"{quantity(wrong, 'claim')} of the driver {'is' if wrong == 1 else 'are'} wrong: see above."
        raise CliError(f"{claims} Correct the driver or its options before the host gets a change.")


def measure(
    url: Url = None,
    name: Name = None,
    option: Options = None,
    test_host: Annotated[
        bool, typer.Option("--test-host", help="It is a test host: operations are written, and a ban is provoked.")
    ] = False,
    payload: Annotated[
        str, typer.Option(help="JSON: the payload of operations that it applies.")
    ] = '{"status":"Clean"}',
    bad_payload: Annotated[str | None, typer.Option(help="JSON: the payload of one that it rejects.")] = None,
    event_type: Annotated[str, typer.Option(help="Their event type.")] = "unit_status_changed",
    entity: Annotated[str, typer.Option(help="Their entity, as type/id.")] = "unit/driver-measure",
    ban_seconds: Annotated[float, typer.Option(min=0, max=3600, help="How long the end of a ban is waited for.")] = 60,
    folder: Annotated[Path | None, typer.Option(file_okay=False, help="Write the two results there, too.")] = None,
) -> None:
    """Measure a test host: write operations, provoke what it punishes, and print settings and a simulator like it.

    It uses some 40 of the host's numbers, and ends with a number that comes again.
    """
    host = _host(url, name, option)
    if not test_host:
        raise CliError("it writes operations and provokes a ban: say --test-host if that is what it is for.", WRONG)
    good = _body(host, event_type, entity, payload)
    bad = None if bad_payload is None else _body(host, event_type, entity, bad_payload)(0)
    if typer.prompt(f"Type {host.authority} to write operations there", err=True) != host.authority:
        raise CliError("that is not its name: nothing was written.", WRONG)
    tell = lambda what: typer.echo(f"measuring: {what}", err=True)  # noqa: E731
    measurement = HostMeasurement(host.driver, host.way, Bodies(good, bad), time.sleep, tell, ban_seconds)
    try:
        with _reached():
            found = measurement.run()
    except NoCount as error:
        raise CliError(f"{host.authority} can't be measured: {error}.") from error
    _print(f"{host.url}, measured by driver {host.driver_name}", found.findings)
    can = host.driver.capabilities
    table = hosts_table(host.name, host.url, host.driver_name, can, found)
    options = " ".join(["oldhost-sync simulator", *simulator_options(host.driver_name, can, found)])
    told = f"\n# For the hosts file:\n{table}\n# A simulator that behaves so:\n{options}"
    console().print(told, soft_wrap=True, markup=False, highlight=False)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{host.name}.toml").write_text(table, encoding="utf-8")
        (folder / f"{host.name}-simulator.sh").write_text(f"{options}\n", encoding="utf-8")


def _print(title: str, findings: list[ClaimFinding]) -> None:
    lines = [(f.verdict, f.subject, f.claim, f.found) for f in findings]
    console().print(rows(title, ("", "what", "the driver claims", "found"), lines))


# ------------------------------------------------------------------------------------------------------------ the host


@dataclass(frozen=True, slots=True)
class _Host:
    """The host that a command speaks to."""

    name: str
    url: str
    authority: str
    driver_name: str
    driver: Driver
    way: Way
    mapping: HostMapping


def _host(url: str | None, name: str | None, options: list[str] | None) -> _Host:
    """With its settings; a URL that is not in them is reached without the files that let us in elsewhere."""
    config = settings()
    own = config.of_host(config.host)
    given: dict[str, Any] = {}
    if url is not None and url != own.url:
        given |= {"url": url, "proxy": None, **dict.fromkeys(name for name in PATHS if name != "mapping_file")}
    if name is not None:
        given |= {"driver": name, "options": {}}
    if options:
        given["options"] = dict(map(_option, options))
    try:
        chosen = HostSettings.model_validate({**own.model_dump(), **given})
        wrong = [f"{'.'.join(key)}: {why}" for key, why in chosen.mistakes_of_driver()]
    except ValidationError as error:
        wrong = [f"{found['loc'][0]}: {found['msg']}" for found in error.errors(include_input=False, include_url=False)]
    if wrong:
        other = " Another driver is named by --driver." if url is not None and name is None else ""
        raise CliError(f"{'; '.join(wrong)}.{other}", WRONG)
    if chosen.url is None:
        no_file = "" if config.hosts_file else ": SYNC_HOSTS_FILE names no file"
        of_file = f"host {config.host} has no address{no_file}. "
        raise CliError(f"{of_file}Give it: `oldhost-sync driver check tcp://10.0.0.7:4100 --driver NAME`.", WRONG)
    address, driver = parse_address(chosen.url), chosen.made_driver()
    connector = Connector(address, driver, time.monotonic, access=chosen.access())
    way = Way(lambda: connector.connect(lambda: None), time.monotonic, chosen.request_timeout_seconds)
    mapping = OLDHOST if chosen.mapping_file is None else read_mapping(chosen.mapping_file)
    return _Host(config.host, chosen.url, address.authority, chosen.driver, driver, way, mapping)


def _option(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`, with a value of TOML, or text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise CliError("give an option of the driver as KEY=VALUE.", WRONG)
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _body(host: _Host, event_type: str, entity: str, payload: str) -> Callable[[int], bytes]:
    """Makes the operation of a number, as the host's mapping does."""
    entity_type, entity_id = entity_of(entity)
    try:
        content = json.loads(payload)
        change = ChangeContent(entity_type, entity_id, event_type, content)
        host.mapping.check(change)
    except (ValueError, AttributeError, NotMapped) as error:
        raise CliError(f"the payload can't be used: {error}.", WRONG) from error

    def body(number: int) -> bytes:
        key = f"driver-measure-{number}"
        return host.mapping.encode(replace(change, change_id=number, idempotency_key=key)).body

    return body


@contextmanager
def _reached() -> Iterator[None]:
    """Errors of the connection, with what to do."""
    try:
        yield
    except NoAccess as error:
        raise CliError(f"{error}. Correct the host's files or its address in the settings.") from error
    except NoConnection as error:
        raise CliError(f"the host can't be reached: {error}. Check its address, and whether it is up.") from error
    except Silent as error:
        raise CliError(
            f"the host takes the connection, and does not answer: {error}. Is it the right driver?"
        ) from error
    except HostError as error:
        raise CliError(f"{error}. Is it the right address, and the right driver?") from error
