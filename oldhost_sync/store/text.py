r"""Makes text from outside storable: every text that people will read passes through here.

JSON can contain what UTF-8 can't (`"\ud800"`, half a character), and the driver fails on it at each attempt; control
characters (NUL, escape) would mislead a reader. Both are stored escaped: `\ud800`, `\x1b`.
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def storable(text: str, length_max: int) -> str:
    """`text` for a column of `length_max` characters: never refused, cut if it is too long."""
    return _UNPRINTABLE.sub(_as_escape, text[:length_max])[:length_max]


def _as_escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def like_pattern(text: str, *, anywhere: bool = False) -> str:
    """A LIKE pattern for values that begin with `text`, or contain it anywhere; wildcards in `text` are escaped."""
    escaped = re.sub(r"([\\%_])", r"\\\1", text)
    return f"%{escaped}%" if anywhere else f"{escaped}%"
