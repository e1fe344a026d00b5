"""The demonstration's picture tells what happened, on the clock of reality."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from oldhost_sync.demo import diagram
from oldhost_sync.demo.diagram import Story, story_of
from oldhost_sync.demo.verdict import Run
from tests.unit.demo.test_verdict import perfect


def run_with_a_ban() -> Run:
    run = perfect()
    first = min(change.accepted_at for change in run.facts.changes)
    return replace(run, ban=(first + 1, first + 2))


def told() -> Story:
    return story_of(run_with_a_ban())


def test_every_series_ends_with_what_the_books_say() -> None:
    run = perfect()
    shown = story_of(run)
    applied = [change for change in run.facts.changes if change.outcome == "APPLIED"]
    assert (shown.accepted[-1], shown.applied[-1]) == (len(run.facts.changes), len(applied))
    assert [waiting[-1] for waiting in shown.backlog.values()] == [0, 0, 0]


def test_what_waits_is_what_came_and_has_no_fate_yet() -> None:
    shown = told()
    ended = [one + other for one, other in zip(shown.applied, shown.superseded, strict=True)]
    waiting = [sum(column) for column in zip(*shown.backlog.values(), strict=True)]
    assert [came - gone for came, gone in zip(shown.accepted, ended, strict=True)] == waiting
    assert max(waiting) > 0


def test_times_are_those_of_reality() -> None:
    run = run_with_a_ban()
    shown, factor = story_of(run), run.compressed.factor
    assert round(shown.ban[1] - shown.ban[0], 6) == round(factor / 60, 6)
    assert {round(seconds, 6) for _, seconds in shown.emergencies} == {0.5 * factor}


def test_the_title_counts_changes_operations_and_losses() -> None:
    run = perfect()
    run.facts.changes.pop()
    changes, operations = len(run.facts.changes), len(run.facts.journal)
    assert story_of(run).title == f"{changes:,} changes in → {operations:,} operations, 1 lost"


def test_the_picture_is_whole_and_asks_nothing_of_anybody() -> None:
    picture = diagram.svg(told())
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()}
    assert {"polyline", "polygon", "circle"} <= tags
    assert not tags & {"script", "image", "a", "use"}
    assert picture.count("http") == 1, "the name of SVG itself"


def test_each_emergency_is_a_dot_inside_its_panel() -> None:
    shown = told()
    dots = [element for element in ET.fromstring(diagram.svg(shown)).iter() if "cx" in element.attrib]
    top, bottom = diagram.EMERGENCIES
    assert len(dots) == len(shown.emergencies)
    assert all(top <= float(dot.attrib["cy"]) <= bottom for dot in dots)


def test_the_terminal_shows_the_ban_in_red_and_fits_100_columns() -> None:
    lines = diagram.lines(told())
    assert all(line.cell_len <= 100 for line in lines)
    assert "red" in {str(span.style) for line in lines for span in line.spans}
