"""Prints results, and writes them as Markdown, JSON and SVG into `bench/results/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.result import Cell, Picture, Result, Target, shown

NOT_MEASURED = (
    "–: the rival has nothing of the kind (no writer that holds changes, no snapshot, no history), shares the part "
    "with the product (the API, the recovery after a lost reply), would take hours (an emergency behind the plain "
    "loop's whole backlog), or was not run there, to save time: the quickest rival stands for the others."
)
_SIZE_INCHES = (8.0, 4.2)
_BARS_WIDTH = 0.8  # of a group's place, all its bars together


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
            _draw(picture, folder / f"{picture.name}.svg")


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


def to_text(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table whose columns stand under each other in a terminal too."""
    cells = [list(header), *[[shown(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


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


def _draw(picture: Picture, file: Path) -> None:
    """Write `picture` to `file` (.svg). Text stays text, and the same figures give the same file, byte for byte."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif"}):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot(title=picture.title, xlabel=picture.x, ylabel=picture.y)
        (_bars if picture.bars else _lines)(axes, picture)
        if picture.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        for first, last, word in picture.shades:
            axes.axvspan(first, last, alpha=0.12, color="C3")
            axes.text((first + last) / 2, 0.97, word, ha="center", va="top", transform=axes.get_xaxis_transform())
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        if len(picture.series) > 1:
            figure.legend(loc="outside lower center", ncols=len(picture.series), frameon=False)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _lines(axes: Axes, picture: Picture) -> None:
    if picture.log_x:
        axes.set_xscale("log")
    for series in picture.series:
        axes.plot(*zip(*series.points, strict=True), label=series.name, marker="." if len(series.points) <= 12 else "")


def _bars(axes: Axes, picture: Picture) -> None:
    width = _BARS_WIDTH / len(picture.series)
    for number, series in enumerate(picture.series):
        shift = width * (number - (len(picture.series) - 1) / 2)
        places = [group + shift for group in range(len(picture.labels))]
        drawn = axes.bar(places, [y for _, y in series.points], width * 0.92, label=series.name)
        axes.bar_label(drawn, fmt=shown, fontsize="small")
    axes.set_xticks(range(len(picture.labels)), picture.labels)
    axes.margins(y=0.15)
