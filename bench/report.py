"""Prints results, and writes them as Markdown, JSON and SVG into `bench/results/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.pictures import draw
from bench.result import Cell, Result, Target, shown

NOT_MEASURED = (
    "–: the rival has nothing of the kind (no writer that holds changes, no snapshot, no history), shares the part "
    "with the product (the API, the recovery after a lost reply), would take hours (an emergency behind the plain "
    "loop's whole backlog), or was not run there, to save time: the quickest rival stands for the others."
)


def to_text(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table whose columns stand under each other in a terminal too."""
    cells = [list(header), *[[shown(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def to_markdown(result: Result) -> str:
    parts = [f"## {result.title}"]
    if result.conditions:
        parts.append("Conditions: " + " · ".join(result.conditions))
    if result.error:
        parts.append(f"**Not measured:** {result.error}")
    for table in result.tables:
        heading = f"**{table.title}**\n\n" if table.title else ""
        parts.append(heading + to_text(table.header, table.rows))
    if result.targets:
        parts.append(targets_table(result.targets))
    parts += [f"- {note}" for note in result.notes]
    parts += [f"![{picture.title}]({picture.name}.svg)" for picture in result.pictures]
    parts.append(f"({result.name}, {result.seconds:.0f} s)")
    return "\n\n".join(parts) + "\n"


def targets_table(targets: Sequence[Target]) -> str:
    """With a column for each rival that was measured beside one of them, and one that says which did better."""
    rivals = list(dict.fromkeys(name for each in targets for name in each.rivals))
    rows = [
        (
            each.what,
            f"{shown(each.measured)} {each.unit}".strip(),
            f"{each.bound} {shown(each.limit)} {each.unit}".strip(),
            "met" if each.met else "MISSED",
            ahead(each),
            *(each.rivals.get(name) for name in rivals),
        )
        for each in targets
    ]
    return to_text(("target", "measured", "promised", "", "rival ahead?", *rivals), rows)


def ahead(target: Target) -> str:
    """The rivals that did better in the same run, by more than `LEVEL`; – where none can be measured."""
    if not target.rivals:
        return "–"
    return ", ".join(target.ahead) or "no"


def write(results: Sequence[Result], folder: Path, headline: str) -> None:
    """One page, one JSON file, and the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = [target for result in results for target in result.targets]
    page = [
        "# Benchmark",
        headline,
        "## Targets",
        targets_table(targets),
        NOT_MEASURED,
        *[to_markdown(result) for result in results],
    ]
    (folder / "results.md").write_text("\n\n".join(page))
    as_json = {"run": headline, "results": [result.as_json() for result in results]}
    (folder / "results.json").write_text(json.dumps(as_json, indent=1) + "\n")
    for result in results:
        for picture in result.pictures:
            draw(picture, folder / f"{picture.name}.svg")
