"""Wrong ideas about what an application's developers get: the test kit, the document."""

from __future__ import annotations

from tests.mutants.levels import DOORS_OF_PAGES, TEST_KIT
from tests.mutants.mutant import Mutant, Patch

RECORDER, SQLITE = "oldhost_sync/testing/recorder.py", "oldhost_sync/testing/sqlite_statements.py"

MUTANTS = (
    Mutant(
        "a test's recorder takes a connection that commits each statement",
        (Patch(SQLITE, "str(int(self._autocommit))", '"0"'),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "a test sees what another one has recorded",
        (Patch(RECORDER, "if not found or not found.endswith(self._id):", "if not found:"),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "who asks the recorder commits what the application has begun",
        (Patch(RECORDER, "begun = connection is not None or driver.in_transaction", "begun = False"),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "a schema is not part of a table's name in SQLite",
        (Patch(SQLITE, 'r"`\\1.\\2`"', 'r"\\2"'),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "the recorder sends every LWW change of a key",
        (Patch(RECORDER, "if is_lww and newest[each.key] != each.change_id:", "if False:"),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "the recorder sends a TXN change although an older one of its entity is dead",
        (Patch(RECORDER, "and each.key[:2] in dead)", "and False)"),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "a withdrawn change stays in the state that a test reads",
        (Patch(RECORDER, "            _show_newest(statements, host, taken.key, left)\n", ""),),
        levels=(TEST_KIT,),
    ),
    Mutant(
        "the document needs a token",
        (Patch("oldhost_sync/api/routes/health.py", "**hidden, **public())", "**hidden, **access(WATCHERS))"),),
        levels=(DOORS_OF_PAGES,),
    ),
    Mutant(
        "the page of the API needs a sign-in",
        (
            Patch(
                "oldhost_sync/console/api_page.py",
                'add("GET", DOCS, self.show)',
                'add("GET", DOCS, self.show, WATCHERS)',
            ),
        ),
        levels=(DOORS_OF_PAGES,),
    ),
)
