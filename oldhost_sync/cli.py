"""The command line: one Typer application, one command per role or question."""

import typer

app = typer.Typer(no_args_is_help=True, help="Keeps OldHost in step: nothing lost, nothing replayed.")


@app.callback()
def root() -> None:
    """Commands are added by the parts they belong to."""


def main() -> None:
    """Entry point of the `oldhost-sync` script."""
    app()


if __name__ == "__main__":
    main()
