"""`status`: the state as the console's banner says it, the writer's own figures, and the books; if one of them can't be
read, the others are still shown. `hosts`: the state of every host in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text
from sqlalchemy.engine import Engine

from oldhost_sync.api.situation import Situation, Stop, Tone, judge
from oldhost_sync.cli.output import AsJson, console, print_json, rows, shown, span
from oldhost_sync.cli.writer import client, link
from oldhost_sync.environment import database, settings
from oldhost_sync.explanations import explain
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.plain_text import instant, quantity
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises
from oldhost_sync.settings import Settings
from oldhost_sync.store.alerts import RaisedAlert
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.errors import UnknownHost
from oldhost_sync.store.outbox.books import Books
from oldhost_sync.store.read import host_condition
from oldhost_sync.store.read.host_condition import HostCondition, read_condition
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.writer_client import WriterError
from oldhost_sync.user_errors import FAILED, WRONG, CliError, print_error

if TYPE_CHECKING:
    from oldhost_sync.api.routes.hosts import ServedHost
    from oldhost_sync.store.read.host_condition import HostCondition


# Often enough to watch a backlog drain.
REFRESH_SECONDS = 2.0
# Shown before the figures: more alerts would push the figures off the screen.
ALERTS_SHOWN = 5
CLASSES = [cls.value for cls in PriorityClass]


@dataclass
class StatusFindings:
    """What one query found. `troubles`: why a part is missing; `alerts`: the worst open ones."""

    host: str
    writer: dict[str, Any] | None = None
    database: dict[str, Any] | None = None
    alerts: list[RaisedAlert] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    situation: Situation | None = None
    promises: Promises = USUAL_PROMISES


def add_to(app: typer.Typer) -> None:
    app.command()(status)
    app.command()(hosts)


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """What the writer is doing: state, lanes, breaker, session, nonces, rates, forecast, books, alerts."""
    if watch and as_json:
        raise CliError("--watch and --json can't be combined: call `status --json` as often as you like.", WRONG)
    if watch and not console().is_terminal:
        raise CliError("--watch needs a terminal: call `status`, or `status --json`, as often as you like.", WRONG)
    look = StatusReader(settings())
    try:
        if watch:
            asyncio.run(_watch(look))
            return
        seen = asyncio.run(look.once())
    finally:
        look.close()
    if as_json:
        found = {"situation": asdict(seen.situation) if seen.situation else None, "writer": seen.writer}
        print_json({"host": seen.host, **found, **(seen.database or {"books": None, "ledger": None})})
    elif seen.writer or seen.database:
        console().print(picture(seen))
    for trouble in seen.troubles:
        print_error(trouble)
    if seen.troubles:
        raise typer.Exit(FAILED)


class StatusReader:
    """Asks database and writer; keeps its connections from one query to the next."""

    def __init__(self, config: Settings) -> None:
        self._config = config
        self._promises = config.of_host(config.host).promises
        self._called = partial(config.called, config.host)
        self._engine: Engine | None = None
        self._writer = client(config)

    async def once(self) -> StatusFindings:
        from oldhost_sync.api.situation_reader import Observation, observed, trouble_of
        from oldhost_sync.api.writer_link import problem_of

        seen = StatusFindings(self._config.host, promises=self._promises)
        condition: Observation[HostCondition] = Observation()
        writer: Observation[dict[str, Any]] = Observation()
        try:
            seen.database, found = await asyncio.to_thread(self._read)
            seen.alerts, condition = found.alerts[:ALERTS_SHOWN], Observation(found)
        except Exception as error:  # noqa: BLE001 - reported below, or raised again
            seen.troubles.append(_message_of(error))
            if isinstance(error, UnknownHost):
                return seen
            condition = Observation(trouble=seen.troubles[-1])
        try:
            seen.writer = await self._writer.query("status")
            writer = Observation(seen.writer)
        except WriterError as error:
            seen.troubles.append(str(explain(error)))
            writer = trouble_of(problem_of(error))
        seen.situation = judge(observed(datetime.now(UTC), writer, condition, self._promises, self._called))
        return seen

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _read(self) -> tuple[dict[str, Any], HostCondition]:
        host = self._config.host
        if self._engine is None:
            engine = create_engine(self._config.need_database_url(), pool_size=1)
            check_database(engine, (host,))
            self._engine = engine
        found, condition = run_in_transaction(
            self._engine,
            lambda connection: (host_condition.read_status(connection, host), read_condition(connection, host)),
        )
        found["books"]["balance"] = Books(**found["books"]).balance
        return found, condition


def _message_of(error: Exception) -> str:
    known = explain(error)
    if known is None:
        raise error
    return str(known)


async def _watch(look: StatusReader) -> None:
    with Live(Text("asking …"), console=console(), auto_refresh=False, screen=False) as live:
        while True:
            seen = await look.once()
            now = datetime.now(UTC)
            live.update(Group(Text(f"{shown(now)}   Ctrl-C ends this", style="dim"), picture(seen)), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)


# ------------------------------------------------------------------------------------------------------------- pictures


def picture(seen: StatusFindings) -> Group:
    """What was found: problems first (headline, what can't be read, open alerts), then tables."""
    parts: list[Any] = [_headline(seen)]
    parts += [Text(trouble, style="red") for trouble in seen.troubles]
    if seen.database is not None:
        parts.append(_alerts(seen.alerts, seen.database["open_alerts"]))
    if seen.writer is not None:
        parts += [_lanes(seen.writer), rows("", ("writer", ""), _writer_lines(seen.writer))]
    if seen.database is not None:
        parts.append(rows("", ("books", ""), _book_lines(seen.database, seen.promises)))
    return Group(*[part for item in parts for part in (item, Text())][:-1])


_STYLES = {Tone.GOOD: "bold green", Tone.CALM: "bold", Tone.WARNING: "bold yellow", Tone.BAD: "bold red"}


def _headline(seen: StatusFindings) -> Text:
    """The banner of the console."""
    situation = seen.situation
    if situation is None:
        return Text.assemble((seen.host, "bold"), "  ", ("UNKNOWN", "bold red"))
    text = Text.assemble((seen.host, "bold"), "  ", (situation.word, _STYLES[situation.tone]), f"  {situation.why}")
    for also in situation.also:
        text.append_text(Text.assemble("\nand ", (also.word, "bold red"), f"  {also.why}"))
    stops: tuple[Situation | Stop, ...] = (situation, *situation.also)
    for stop in stops:
        if stop.until:
            text.append(f"\n{stop.word}, at least until {instant(stop.until)}")
    text.append_text(Text.assemble("\n", ("Next: ", "bold"), situation.next_step))
    return text


def _alerts(alerts: Sequence[RaisedAlert], count: int) -> Text:
    if not alerts:
        return Text("No open alerts.", style="dim")
    shown_alerts = Text(f"{count} open {'alert' if count == 1 else 'alerts'}", style="bold")
    for alert in alerts:
        handled = f" ({alert.acknowledged_by} is handling it)" if alert.acknowledged_by else ""
        style = "red" if alert.severity == "critical" else "yellow" if alert.severity == "warning" else ""
        shown_alerts.append_text(
            Text.assemble("\n", (f"{alert.severity} {alert.kind}", style), f": {alert.message}{handled}")
        )
    if count > len(alerts):
        shown_alerts.append(f"\nand {count - len(alerts)} more: oldhost-sync alerts")
    return shown_alerts


def _lanes(writer: dict[str, Any]) -> Any:
    lines = [
        (name, lane["depth"], span(lane["oldest_age_ms"]) if lane["depth"] else "–")
        for name, lane in sorted(writer["lanes"].items(), key=lambda lane: CLASSES.index(lane[0]))
    ]
    lines.append(("held back by the debounce", writer["debounced"], "–"))
    lines.append(("held behind dead letters", writer["held"], "–"))
    if writer.get("apart"):
        lines.append(("entities that wait apart", writer["apart"], "–"))
    return rows("", ("lane", "waiting", "oldest"), lines)


def _writer_lines(writer: dict[str, Any]) -> Sequence[tuple[str, object]]:
    session, rates, forecast = writer["session"], writer["rates"], writer["forecast"]
    promises = [name for name in ("consistency", "emergency") if forecast[f"breaks_{name}"]]
    return (
        ("breaker", writer["breaker"]["state"]),
        ("session", _session(session)),
        ("in flight", f"{writer['in_flight']} ({writer['in_doubt']} in doubt)"),
        ("dead letters", writer["dead_letters"]),
        (
            "rates",
            "{arrivals_per_s:.2f}/s arrive, {applied_per_s:.2f}/s applied, {service_ms:.0f} ms each".format(**rates),
        ),
        ("forecast", _forecast(writer)),
        ("promises", f"not kept, by the forecast: {', '.join(promises)}" if promises else "kept, by the forecast"),
    )


def _session(session: dict[str, Any]) -> str:
    if session["phase"] == "open":
        return f"open, epoch {session['epoch']}, opened at nonce {session['opened_at_nonce']}"
    waiting_for = f", waiting for: {session['waiting_for']}" if session["waiting_for"] else ""
    return f"{session['phase']}{waiting_for} (the last had epoch {session['epoch']})"


def _forecast(writer: dict[str, Any]) -> str:
    forecast = writer["forecast"]
    if not writer["waiting"]:
        return (
            f"nothing waits at the writer behind the {writer['in_flight']} in flight"
            if writer["in_flight"]
            else "nothing waits at the writer"
        )
    if forecast["drain_ms"] is None:
        return "never empty: more arrives than is applied"
    return f"empty in {span(forecast['drain_ms'])}, oldest then {span(forecast['oldest_age_ms'])}"


def _book_lines(database: dict[str, Any], promised: Promises) -> Sequence[tuple[str, object]]:
    books, ledger = database["books"], database["ledger"]
    lines = [(name.replace("_", " "), value) for name, value in books.items() if name != "balance"]
    lines.append(("balance", "yes" if books["balance"] else "NO: an invariant is broken, investigate at once"))
    lines.append(("oldest waiting since", database["oldest_waiting_at"]))
    lines.append(("open alerts", database["open_alerts"]))
    others = database["states_of_other_mappings"]
    by_others = f"; another one made {quantity(others, 'state')} that OldHost has" if others else ""
    lines.append(("mapping", f"{database['mapping']}{by_others}"))
    late = database["emergency_breaches"]
    if late["incidents"]:
        incidents = quantity(late["incidents"], "incident")
        counted = f"{late['breaches']} in {incidents}, the longest {late['worst_ms'] / 1000:.0f} s"
        lines.append((f"emergencies over {promised.emergency}, last 30 days", counted))
    if ledger is not None:
        lines.append(("ledger", f"next nonce {ledger['next_nonce']}, used up to {ledger['last_applied_nonce']}"))
        is_over = ledger["banned_until"] is None or ledger.get("ban_is_over", False)
        if not is_over and ledger["banned_until"] > datetime.now(UTC):
            lines.append(("banned until", ledger["banned_until"]))
        if ledger["halted"]:
            lines.append(("halted", f"{ledger['halted']} (epoch {ledger['epoch']})"))
        if ledger.get("resolve_mode"):
            lines.append(("resolved by", f"{ledger['resolve_mode']}, as soon as OldHost says which nonce it expects"))
    return lines


# ---------------------------------------------------------------------------------------------------------------- hosts


def hosts(as_json: AsJson = False) -> None:
    """Every host in the database, with its state as `status` says it. `--host NAME` before a command chooses one."""
    shown_hosts = asyncio.run(_lines(settings()))
    if as_json:
        print_json({"hosts": [asdict(host) for host in shown_hosts]})
        return
    lines = (
        (host.host, host.state, shown(host.oldest_waiting_at), str(host.open_alerts), host.why) for host in shown_hosts
    )
    console().print(rows("", ("host", "state", "oldest waiting since", "alerts", "why"), lines))


async def _lines(config: Settings) -> list[ServedHost]:
    from oldhost_sync.api.routes.hosts import HostList, read_conditions
    from oldhost_sync.store.intake.rules import known_hosts

    with database(config) as engine:
        names = run_in_transaction(engine, known_hosts)

        async def read(hosts: Sequence[str]) -> Mapping[str, HostCondition]:
            return await asyncio.to_thread(run_in_transaction, engine, partial(read_conditions, hosts=hosts))

        writers = {name: link(config, name) for name in names}
        listed = HostList(writers, read, lambda host: config.of_host(host).promises, config.called)
        return await listed.lines(names)
