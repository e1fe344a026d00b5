"""Migrations add, while the release before still runs; what takes something away says which release used it last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT

MIGRATIONS = sorted((ROOT / "migrations" / "versions").glob("[0-9]*.py"))
TAKES_AWAY = re.compile(
    r"\b(?:op\.(?:drop_\w+|rename_table|alter_column)|DROP (?:TABLE|COLUMN|INDEX|KEY)|RENAME|MODIFY|CHANGE COLUMN)\b"
)
LOCKS_WRITERS_OUT = re.compile(r"ALGORITHM\s*=\s*COPY|LOCK\s*=\s*(?:SHARED|EXCLUSIVE)|LOCK TABLES")
# In the docstring of a migration that takes away: "Contracts: … was last used by version 0.3."
CONTRACTS = re.compile(r"Contracts: .*last used by version \d+\.\d+")


def upgrade_of(text: str) -> str:
    """What the migration does on its way up."""
    return text.split("def upgrade()", 1)[1].split("def downgrade()", 1)[0]


def trouble(text: str) -> str:
    steps = upgrade_of(text)
    if (found := TAKES_AWAY.search(steps)) and not CONTRACTS.search(text):
        return f"{found[0]}: the release before may still use it; contract it in a later release"
    found = LOCKS_WRITERS_OUT.search(steps)
    return f"{found[0]}: writers would wait" if found else ""


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.stem)
def test_a_migration_only_adds_and_locks_nobody_out(path: Path) -> None:
    assert trouble(path.read_text()) == ""


def test_one_migration_brings_the_schema_of_the_release_before() -> None:
    """The first one has all tables: what an installation upgrades from is never older than the release before."""
    heads = [path for path in MIGRATIONS if re.search(r"^down_revision = None$", path.read_text(), re.MULTILINE)]
    assert heads == MIGRATIONS[:1]


@pytest.mark.parametrize(
    ("step", "is_refused"),
    [
        ('op.drop_column("units", "sync_status")', True),
        ('op.execute("ALTER TABLE units MODIFY state JSON")', True),
        ('op.execute("ALTER TABLE units ADD INDEX i (id), ALGORITHM=INPLACE, LOCK=SHARED")', True),
        ('op.execute("ALTER TABLE units ADD INDEX i (id), ALGORITHM=INPLACE, LOCK=NONE")', False),
    ],
)
def test_what_breaks_the_rule_is_noticed(step: str, is_refused: bool) -> None:
    migration = f'"""Something."""\n\n\ndef upgrade() -> None:\n    {step}\n\n\ndef downgrade() -> None:\n    pass\n'
    assert bool(trouble(migration)) == is_refused


def test_what_nobody_uses_any_more_may_go() -> None:
    said = '"""Contracts: sync_status, last used by version 0.1."""'
    text = f'{said}\ndef upgrade() -> None:\n    op.drop_column("units", "sync_status")\n'
    assert trouble(text) == ""
