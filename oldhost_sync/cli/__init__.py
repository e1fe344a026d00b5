"""The command line: one Typer application, one file per group of commands, and one way to print errors."""
