"""The command line: one Typer application, one file per group of commands, and one way in which errors are told."""

from __future__ import annotations

from oldhost_sync.cli.main import app, main, run

__all__ = ["app", "main", "run"]
