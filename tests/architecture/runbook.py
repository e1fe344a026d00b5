"""What docs/operations.md says of each kind of alert: `python -m tests.architecture.runbook` writes it anew.

The first paragraphs of a kind's section, up to what closes it, are the code's; what follows them is written by hand.
"""

from __future__ import annotations

import re
import textwrap

from oldhost_sync.policy.alert_kinds import KINDS
from tests.architecture.project_files import ROOT

PAGE = ROOT / "docs" / "operations.md"


def opening(kind: str) -> str:
    """How the section of this kind begins."""
    known = KINDS[kind]
    command = f"\n    {known.command}\n" if known.command else ""
    return (
        f"### Alert {kind}\n"
        f"{_wrapped(f'*{known.severity.capitalize()}.* {known.meaning}')}\n"
        f"{_wrapped(f'**Do:** {known.next_step}')}"
        f"{command}\n"
        f"*Closed when* {known.ends}.\n"
    )


def _opening_of(kind: str) -> re.Pattern[str]:
    """From the heading to what closes it."""
    return re.compile(rf"^### Alert {kind}\n.*?^\*Closed when\*[^\n]*\n", re.MULTILINE | re.DOTALL)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 160, break_on_hyphens=False, break_long_words=False) + "\n"


def main() -> None:
    page = PAGE.read_text()
    for kind in KINDS:
        page = _opening_of(kind).sub(opening(kind).replace("\\", r"\\"), page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
