"""The command line: one Typer application, one file per group of commands, and one way in which errors are told."""
