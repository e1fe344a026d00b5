"""Text from outside is shown as text, on every surface."""

from __future__ import annotations

import io
import json
import logging
import re
import unicodedata
from contextlib import redirect_stderr

import pytest
from markupsafe import Markup
from rich.console import Group
from rich.text import Text

from oldhost_sync.cli.output import Screen, print_json, rows
from oldhost_sync.console.layout import Layout
from oldhost_sync.logs import PlainLines, json_formatter
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.plain_text import plain, plain_markdown
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.user_errors import print_error
from workflows import status_report

HOSTILE = {
    "colours and a cleared screen": "ok\x1b[2J\x1b[31mALL IS WELL\x1b[0m",
    "a title of the terminal": "\x1b]0;pwned\x07",
    "one byte that begins a sequence": "\x9b31m",
    "a copy to the clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "another line": "unit\r\n2026-11-27 00:00:00 INFO oldhost_sync all is well",
    "a line break of Unicode": "a\u2028b\u2029c\x85d",
    "an overwritten line": "not applied\rapplied    ",
    "erased text": "no\b\by",
    "another direction": "\u202egnp.exe\u202c \u2066x\u2069 \u200f",
    "what is not seen": "A\u200b-\u2060101\ufeff\xad\U000e0041",
    "half a character": "\ud83d",
    "nothing": "\0",
    "markup of the terminal": "[red]gone[/] [link=https://evil.example]here[/link]",
    "Markdown": "[here](https://evil.example) **all** `is` | well | <b>",
    "HTML": "<script>alert(1)</script>&lt;",
    "JSON": '"}, {"level": "error", "x": "\\',
    "a long one": "x" * 10_000,
}
each = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def is_plain(shown: str, *, lines: bool = False) -> bool:
    """No control character but line breaks, nothing invisible, nothing that changes the direction."""
    known = "\n" if lines else ""
    return all(
        character in known or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        for character in shown
    )


@each
def test_json_at_the_terminal_has_the_same_value(text: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({text: [text]})
    printed = capsysbinary.readouterr().out.decode()
    assert is_plain(printed, lines=True)
    assert json.loads(printed) == {text: [text]}


@each
def test_it_becomes_one_line_without_anything_that_is_obeyed(text: str) -> None:
    assert is_plain(plain(text))
    assert plain(plain(text)) == plain(text)


def test_what_people_write_is_unchanged() -> None:
    for text in ("Wohnung 12B, Größe 80 m²", "العربية", "日本語", "naïve – “quoted” €5", "👩‍🚀".replace("\u200d", "")):
        assert plain(text) == text


@each
def test_a_command_prints_it_as_text_wherever_it_stands(text: str) -> None:
    page = io.StringIO()
    screen = Screen(file=page, width=100, force_terminal=True, color_system=None)
    screen.print(rows(text, ("key", text, "more"), [(text, text, 1)]))
    screen.print(rows("", ("a", "b"), [(text, text)]))
    screen.print(f"reason: {text}")
    screen.print(Group(Text(text), rows("", ("a", "b"), [(text, text)])))
    shown = page.getvalue()
    assert is_plain(shown, lines=True)
    if "[red]" in text:
        assert shown.count("[red]gone[/]") >= 5, "markup is shown, not obeyed"


@each
def test_a_cell_is_one_line(text: str) -> None:
    (line,) = rows("", ("a", "b", "c"), [(text, "x", "y")]).cells
    assert is_plain(line[0])


@each
def test_an_error_is_one_line(text: str) -> None:
    with redirect_stderr(io.StringIO()) as errors:
        print_error(f"unknown key {text}")
    assert is_plain(errors.getvalue().removesuffix("\n"))


def a_record(text: str) -> logging.LogRecord:
    raised = (ValueError, ValueError(text), None)
    return logging.LogRecord("oldhost_sync.x", logging.ERROR, __file__, 1, "refused %s", (text,), raised)


@each
def test_a_line_of_a_log_is_one_line_and_what_follows_is_indented(text: str) -> None:
    first, *rest = PlainLines("%(levelname)s %(message)s").format(a_record(text)).split("\n")
    assert is_plain(first)
    assert first.startswith("ERROR refused ")
    assert all(line.startswith("  ") and is_plain(line) for line in rest)


@each
def test_a_line_of_a_json_log_has_its_own_fields_and_no_others(text: str) -> None:
    line = json_formatter().format(a_record(text))
    assert is_plain(line)
    read = json.loads(line)
    assert set(read) == {"time", "level", "logger", "message", "exception"}
    assert read["level"] == "error"


@each
def test_a_page_shows_it_as_text(text: str) -> None:
    layout = Layout("oldhost")
    shown = layout._templates.from_string("<p title='{{ text }}'>{{ text }}</p>{{ own }}").render(
        text=text, own=Markup("<hr>")
    )
    assert is_plain(shown, lines=True)
    assert "<script" not in shown
    assert shown.endswith("</p><hr>")


@each
def test_temporals_details_show_it_in_its_cell(text: str) -> None:
    machine = Machine(WriterPolicy(), 0)
    before = status_report.details(machine, 0).count("\n")
    machine.breaker.reason = text[:1_000]
    details = status_report.details(machine, 0)
    assert details.count("\n") == before
    assert is_plain(details, lines=True)
    assert "](" not in details
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in details.splitlines()), "cells of the table"


@each
def test_markdown_shows_it_as_text(text: str) -> None:
    shown = plain_markdown(text)
    assert is_plain(shown)
    assert not re.search(r"(?<!\\)[`*_\[\]<>|]", shown.replace("\\\\", ""))
