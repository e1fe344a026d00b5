"""The house rules that a program can keep: the linter of this project for itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from oldhost_sync.host_settings import FILES, SHARED
from tests.architecture.project_files import ROOT, project_files, python_files, text_of

NAMELESS = {"utils", "util", "common", "helpers", "helper", "models", "manager", "misc"}
# The feed of changes; and the old place of a public name, until 0.3.
NOUNS = {
    "oldhost_sync/drivers/mapping.py",
    "oldhost_sync/policy/tuning.py",
    "oldhost_sync/store/read/change_feed.py",
}
# Folders of somebody's machine, and package indexes; assembled where this file would hold what it looks for.
MACHINE_FOLDERS = re.compile(r"(?<![\w.:/-])/(?:" + r"home|root|Users|work|opt)/[\w.]")
INDEX_WORDS = ("pypi" + ".org", "python" + "hosted", "index" + "-url", "trusted" + "-host", "find" + "-links")
# Where those words are options that keep such hosts out.
SAYS_NO_TO_INDEXES = {"Makefile"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate((text_of(path) or "").splitlines(), start=1)
        if MACHINE_FOLDERS.search(line)
    ]
    assert found == []


def test_no_file_names_a_package_index() -> None:
    found = [
        f"{relative(path)}: {word}"
        for path in project_files()
        if relative(path) not in SAYS_NO_TO_INDEXES
        for word in INDEX_WORDS
        if word in (text_of(path) or "")
    ]
    assert found == []


def test_every_file_has_a_name_that_says_what_it_is() -> None:
    assert [relative(path) for path in python_files() if path.stem in NAMELESS or path.parent.name in NAMELESS] == []


def test_every_file_of_the_product_is_named_by_a_noun() -> None:
    """A participle says what somebody does; a file says what is there."""
    product = [path for path in python_files() if relative(path).split("/")[0] not in {"tests", "bench", "migrations"}]
    participles = [path for path in product if path.stem.endswith(("ing", "ed")) and relative(path) not in NOUNS]
    assert [relative(path) for path in participles] == []


def test_what_hosts_may_differ_in_is_read_of_a_host() -> None:
    """Who reads the deployment's value takes it for every host."""
    of_hosts = {*SHARED, "oldhost_url", "oldhost_urls", *(f"oldhost_{name}" for name in FILES)}
    found = [
        f"{relative(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in python_files()
        if relative(path).split("/")[0] in {"activities", "oldhost_sync", "workflows"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in of_hosts
        if ast.unparse(node.value).rpartition(".")[2] in {"settings", "config", "given"}
    ]
    assert found == []


def test_alert_kinds_are_words_joined_by_hyphens() -> None:
    """People sort alerts by kind, and webhooks route by it: there is one way to write one."""
    kinds: set[str] = set()
    for path in python_files():
        if path.relative_to(ROOT).parts[0] in {"activities", "oldhost_sync", "workflows"}:
            kinds |= alert_kinds(ast.parse(path.read_text()))
    assert {"ban", "no-session", "forecast", "schedule-failed", "submission-refused"} <= kinds
    assert [kind for kind in sorted(kinds) if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind)] == []


def alert_kinds(tree: ast.Module) -> set[str]:
    """The literals that calls which raise an alert have as the kind: the third argument of the store's, the first of
    the policy's, or `kind`.
    """
    kinds: set[str] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in {"raise_alert", "WriterCondition"}:
            at = 2 if name == "raise_alert" else 0
            given = [*call.args[at : at + 1], *(keyword.value for keyword in call.keywords if keyword.arg == "kind")]
            kinds |= {str(each.value) for each in given if isinstance(each, ast.Constant) and each.value}
    return kinds


def test_product_code_asks_the_environment_only_at_its_edge() -> None:
    edge = (
        "oldhost_sync/stack/",
        "oldhost_sync/cli",
        "oldhost_sync/environment.py",
        "oldhost_sync/settings.py",
        "oldhost_sync/demo",
        "oldhost_sync/testing/running_stack.py",  # an application's test run
    )
    product = ("oldhost_sync/", "activities/", "workflows/", "oldhost_simulator/")
    found = [
        relative(path)
        for path in python_files()
        if relative(path).startswith(product) and not relative(path).startswith(edge)
        if re.search(r"\bos\.(environ|getenv)\b", text_of(path) or "")
    ]
    assert found == []


def test_a_class_has_a_name_of_its_own() -> None:
    """One name, one meaning; what the API's and Temporal's messages show of a class may bear its name."""
    messages = ("oldhost_sync/api/routes/", "oldhost_sync/store/read/", "workflows/messages.py")
    defined: dict[str, list[str]] = {}
    for path in python_files():
        if relative(path).split("/")[0] in {"activities", "oldhost_sync", "workflows"}:
            for node in ast.parse(path.read_text()).body:
                if (
                    isinstance(node, ast.ClassDef)
                    and not node.name.startswith("_")
                    and not relative(path).startswith(messages)
                ):
                    defined.setdefault(node.name, []).append(relative(path))
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}
