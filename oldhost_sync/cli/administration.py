"""Administration: API tokens, the rules that decide a change's class, and who is signed in to the console."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.arguments import Operator, Reason, operator_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.cli.submission import event_types
from oldhost_sync.credentials import ApiToken, Role, all_tokens, parse_api_tokens
from oldhost_sync.environment import in_database, settings
from oldhost_sync.fields.scalar import InvalidField, read_name
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.store.access import MINUTES_KEPT, end_sessions_of, last_uses, open_sessions, usage_of_tokens
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.intake.rules import decide_rule, default_class, rules_of
from oldhost_sync.user_errors import WRONG, CliError

# 256 random bits can't be guessed, so a plain SHA-256 of them is safe in a setting.
TOKEN_BYTES = 32
# Ten years. A token that must last longer is made without --days: it never expires.
TOKEN_DAYS_MAX = 3650

tokens = typer.Typer(no_args_is_help=True, help="Tokens for the API.")
rules = typer.Typer(no_args_is_help=True, help="Which class the changes of each event type get.")

sign_ins = typer.Typer(no_args_is_help=True, help="Who is signed in to the console of SYNC_HOST.")


def add_to(app: typer.Typer) -> None:
    tokens.command("new")(new_token)
    tokens.command("list")(list_tokens)
    tokens.command("usage")(show_usage)
    app.add_typer(tokens, name="tokens")
    rules.command("list")(list_rules)
    rules.command("set")(set_one_rule)
    app.add_typer(rules, name="rules")
    sign_ins.command("list")(list_sign_ins)
    sign_ins.command("end")(end_sign_ins)
    app.add_typer(sign_ins, name="sign-ins")


def new_token(
    name: Annotated[str, typer.Argument(help="The owner's name; the audit shows it as the caller.")],
    role: Annotated[Role, typer.Option(help="app: writes changes · viewer: reads · ops: everything")] = Role.APP,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=TOKEN_DAYS_MAX, help="Days until it expires. Without this option it never expires."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A host that the token is valid for; may be repeated. Default: all hosts."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token. It is shown once; the server only gets its SHA-256."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise CliError("a token's name is 1 to 64 of the characters A-Z a-z 0-9 _ . -", WRONG)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    last_day = None if days is None else datetime.now(UTC).date() + timedelta(days=days)
    entry = ApiToken(name, role, hashlib.sha256(token.encode()).hexdigest(), last_day, frozenset(on or ())).entry
    try:
        parse_api_tokens(entry)
    except ValueError as error:
        raise CliError(f"{error}.", WRONG) from None
    if as_json:
        print_json({"name": name, "role": role.value, "token": token, "setting": entry})
        return
    out = console()
    out.print(f"Token of {name} ({role.value}), shown only this once:\n\n  {token}\n", markup=False, soft_wrap=True)
    out.print(
        "Add this line to the file that SYNC_API_TOKENS_FILE names (it takes effect at once), or add it to\n"
        "SYNC_API_TOKENS (comma-separated), and restart the API:\n",
        markup=False,
    )
    out.print(f"  {entry}", markup=False, soft_wrap=True)


def list_tokens(as_json: AsJson = False) -> None:
    """The tokens in the settings and in the token file, and the minute when each was last used."""
    config = settings()
    try:
        tokens = all_tokens(config.api_tokens, config.api_tokens_file)
    except (OSError, ValueError) as error:
        raise CliError(f"SYNC_API_TOKENS_FILE: {error}.", WRONG) from None
    used = in_database(config, lambda connection: last_uses(connection, config.host))
    now = datetime.now(UTC)
    shown = [
        {
            "name": token.name,
            "role": token.role.value,
            "hosts": sorted(token.hosts),
            "last_day": token.last_day,
            "expired": token.has_expired(now),
            "last_used_at": used.get(token.fingerprint),
        }
        for token in tokens
    ]
    if as_json:
        print_json(shown)
    elif shown:
        lines = ((token["name"], token["role"], *_scope(token), token["last_used_at"] or "never") for token in shown)
        console().print(rows("", ("name", "role", "hosts", "valid", "last used"), lines))
    else:
        console().print("No tokens: set SYNC_API_TOKENS or SYNC_API_TOKENS_FILE.")


def _scope(token: dict[str, Any]) -> tuple[str, str]:
    """The hosts where it is valid, and until when."""
    hosts = ", ".join(token["hosts"]) or "all"
    if token["last_day"] is None:
        return hosts, "until it is removed"
    return hosts, f"{'expired after' if token['expired'] else 'through'} {token['last_day']}"


def show_usage(
    minutes: Annotated[int, typer.Option(min=1, max=MINUTES_KEPT, help="How many minutes back to count.")] = 10,
    as_json: AsJson = False,
) -> None:
    """How much each token used the API, the busiest first."""
    config = settings()
    used = in_database(config, lambda connection: usage_of_tokens(connection, config.host, minutes))
    if as_json:
        print_json([{"token": token.token, **asdict(token.usage)} for token in used])
    elif used:
        heads = ("token", "requests", "changes", "emergencies", "refused")
        console().print(rows("", heads, ((token.token, *asdict(token.usage).values()) for token in used)))
    else:
        console().print(f"No token was used in the last {quantity(minutes, 'minute')}.", markup=False)


def list_rules(as_json: AsJson = False) -> None:
    """The rules in force; an event type without a rule is TXN."""
    config = settings()
    rules_in_force = in_database(config, lambda connection: rules_of(connection, config.host))
    if as_json:
        print_json({event_type: cls.value for event_type, cls in rules_in_force.items()})
        return
    lines = (
        (event_type, cls.value, "" if cls is default_class(event_type) else "changed")
        for event_type, cls in rules_in_force.items()
    )
    console().print(rows("", ("event type", "class", ""), lines))


def set_one_rule(
    event_type: Annotated[
        str, typer.Argument(help="The event type, for example rate_changed.", autocompletion=event_types)
    ],
    priority_class: Annotated[PriorityClass, typer.Argument(help="Its class from now on.", case_sensitive=False)],
    reason: Reason = "set at the terminal",
    operator: Operator = None,
) -> None:
    """Set the class of an event type, for the changes recorded from now on. The audit records it."""
    try:
        read_name("event type", event_type)
    except InvalidField as error:
        raise CliError(f"{error}.", WRONG) from None
    config = settings()
    act = partial(decide_rule, host=config.host, event_type=event_type, priority_class=priority_class)
    in_database(config, partial(act, operator=operator_of(operator), reason=reason))
    console().print(f"{event_type} is {priority_class.value} from the next change on.", markup=False)


# ------------------------------------------------------------------------------------------------------------- sign-ins

ENDED = "end-sign-ins"


def list_sign_ins(as_json: AsJson = False) -> None:
    """Who is signed in, since when, and when they last did something."""
    config = settings()
    sessions = in_database(config, lambda c: open_sessions(c, config.host, config.console_idle_seconds))
    if as_json:
        print_json([asdict(session) for session in sessions])
    elif sessions:
        lines = ((session.name, session.since, session.seen_at, session.until) for session in sessions)
        console().print(rows("", ("token", "since", "last use", "at most until"), lines))
    else:
        console().print("Nobody is signed in.")


def end_sign_ins(
    name: Annotated[str, typer.Argument(help="The token's name, as in the list.")],
    reason: Reason,
    operator: Operator = None,
) -> None:
    """Sign everybody out who signed in with this token. The token stays valid: remove it to keep them out."""
    config = settings()

    def end(connection: Connection) -> int:
        count = end_sessions_of(connection, config.host, name)
        if count:
            who = operator_of(operator)
            detail = {"token": name, "sign_ins": count}
            record_act(connection, host=config.host, action=ENDED, operator=who, reason=reason, detail=detail)
        return count

    count = in_database(config, end)
    console().print(f"{quantity(count, 'sign-in')} of {name} ended.", markup=False)
