"""Text for people: what comes from outside is escaped where it could pass for something else than text, and numbers
and times have one form everywhere.

Ids, keys, reasons, OldHost's words and errors of servers may hold anything. A terminal obeys control sequences, a line
break begins a line that looks like ours, and characters of direction show other words than are there. Each surface
escapes in one place: cells and lines of the commands, messages of alerts, lines of a log, values in a page, Temporal's
details.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

# Control characters, half characters; marks, overrides and isolates of direction; separators of lines and paragraphs;
# characters that are not seen.
_NOT_PLAIN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ud800-\udfff\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff"
)
_IN_LINES = re.compile(f"[{_NOT_PLAIN}]")
_IN_A_LINE = re.compile(f"[\t\n{_NOT_PLAIN}]")
# What begins something else than text in Markdown and HTML.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&@:-]")


def plain(text: str, *, lines: bool = False) -> str:
    """`text` with escapes for what is not plain, as one line. `lines`: line breaks and tabs stay."""
    return (_IN_LINES if lines else _IN_A_LINE).sub(_escaped, text)


def plain_markdown(text: str) -> str:
    """`text` as one line of Markdown that shows just this text."""
    return _MARKUP.sub(r"\\\g<0>", plain(text))


def plain_json(text: str) -> str:
    """The JSON `text`, of the same value, with JSON's own escapes for what is not plain."""
    return _IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def quantity(count: int, one: str, many: str = "") -> str:
    """Like "1 change", "1,200 changes"; `many`: the plural, if it is not formed with an s ("emergencies")."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def instant(moment: datetime) -> str:
    """Like "2026-11-22 03:00:00 UTC"; the console reformats it like its other times (`console/words.py`)."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
