"""Line and bar charts as SVG, by matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.result import Picture, shown

_SIZE_INCHES = (8.0, 4.2)
_BARS_WIDTH = 0.8  # of a group's place, all its bars together


def draw(picture: Picture, file: Path) -> None:
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
