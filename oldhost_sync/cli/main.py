"""The application and its entry point."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from oldhost_sync.cli.command_table import COMMANDS, CommandGroup
from oldhost_sync.user_errors import FAILED, INTERRUPTED, WRONG, CliError, print_error

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keeps OldHost in sync: no change is lost, no nonce is replayed.",
)
_wants_traceback = False


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("oldhost-sync")
        except metadata.PackageNotFoundError:
            number = "run from its source"
        typer.echo(f"oldhost-sync {number}")
        raise typer.Exit


def _choose_host(context: typer.Context, host: str | None) -> None:
    """Run one command for another host than SYNC_HOST. A role always serves the hosts in its settings."""
    if host is None:
        return
    if context.invoked_subcommand in COMMANDS and COMMANDS[context.invoked_subcommand].is_role:
        raise CliError(
            "a role serves the hosts in SYNC_HOST, SYNC_OLDHOST_URLS and SYNC_HOSTS_FILE: set these instead of --host.",
            WRONG,
        )
    os.environ["SYNC_HOST"] = host


@app.callback()
def root(
    context: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="The host to use; SYNC_HOST by default.")] = None,
    show_traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback prints the version and exits
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    global _wants_traceback  # noqa: PLW0603 - one flag of one process, set before its one command runs
    _wants_traceback = show_traceback
    _choose_host(context, host)


def main() -> None:
    """Entry point of the `oldhost-sync` script."""
    code = run()
    if "temporalio" in sys.modules:
        from oldhost_sync.temporal.client import leave

        leave(code)
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; prints any error and returns the exit code."""
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="oldhost-sync", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the one place that turns every error into one line
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    if _wants_traceback:
        traceback.print_exception(error)
    usage = getattr(error, "format_message", None)  # the command line was wrong
    if usage is not None:
        if message := str(usage()).replace("Value error, ", ""):
            print_error(f"{message.rstrip('.')}. {_advice(error)}")
        return WRONG
    from oldhost_sync.explanations import explain  # not needed by a command that succeeds

    known = explain(error)
    if known is not None:
        print_error(str(known), is_last=True)
        return known.exit_code
    print_error(
        f"{type(error).__name__}: {error}. "
        "This is a bug in OldHost Sync: repeat with `oldhost-sync --traceback …`, and report it.",
        is_last=True,
    )
    return FAILED


def _advice(error: Exception) -> str:
    """What to do about a command line that was wrong."""
    context = getattr(error, "ctx", None)
    if context is None:
        return "Try `oldhost-sync --help`."
    path, option = str(context.command_path), getattr(error, "option_name", None)
    root = context.find_root()
    if any(option in param.opts for param in root.command.params):
        below = path.removeprefix(root.command_path).strip()
        return f"It stands before the command: `{root.command_path} {option} … {below}`."
    if context is not root and (commands := getattr(context.command, "commands", None)):
        return f"`{path}` has: {', '.join(commands)}. Try `{path} --help`."
    return f"Try `{path} --help`."
