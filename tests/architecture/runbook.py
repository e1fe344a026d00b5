"""What comes from the table of alerts: `python -m tests.architecture.runbook` writes it anew.

It is what docs/operations.md says of each kind, and the rules of Prometheus.

The first paragraphs of a kind's section, up to the next step and its command, are the code's; what follows them is
written by hand. What closes an alert is shown at the alert.
"""

from __future__ import annotations

import json
import re
import textwrap

from oldhost_sync.policy.rules.alert_kinds import KINDS, metric_rules
from tests.architecture.project_files import ROOT

PAGE = ROOT / "docs" / "operations.md"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_RULES_BEGIN = """\
# Alerts for Prometheus, from the table in oldhost_sync/policy/rules/alert_kinds.py. The command
# `python -m tests.architecture.runbook` writes this file. Each rule links to a section of the runbook, relative to the
# repository. Its tests are in rules_test.yml.
groups:
  - name: oldhost-sync
    rules:
"""


def opening(kind: str) -> str:
    """How the section of this kind begins."""
    known = KINDS[kind]
    command = f"\n    {known.command}\n" if known.command else ""
    return (
        f"### Alert {kind}\n"
        f"{_wrapped(f'*{known.severity.capitalize()}.* {known.meaning}')}\n"
        f"{_wrapped(f'**Do:** {known.next_step}')}"
        f"{command}"
    )


def rules() -> str:
    """The file of rules for Prometheus."""
    written = [
        f"      - alert: OldHostSync{rule.name}\n"
        f"        expr: >-\n          {rule.expression}\n"
        + (f"        for: {rule.lasts}\n" if rule.lasts else "")
        + f"        labels: {{severity: {rule.severity}}}\n"
        "        annotations:\n"
        f"          summary: {json.dumps(rule.summary)}\n"
        f"          runbook_url: {address}\n"
        for rule, address in metric_rules()
    ]
    return _RULES_BEGIN + "\n".join(written)


def _opening_of(kind: str) -> re.Pattern[str]:
    """From the heading to the next step and its command. What is written by hand does not begin with a command."""
    return re.compile(rf"^### Alert {kind}\n.*?^\*\*Do:.*?\n(?=\n)(?:\n {{4}}[^\n]*\n)?", re.MULTILINE | re.DOTALL)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 160, break_on_hyphens=False, break_long_words=False) + "\n"


def main() -> None:
    page = PAGE.read_text()
    for kind in KINDS:
        page = _opening_of(kind).sub(opening(kind).replace("\\", r"\\"), page)
    PAGE.write_text(page)
    RULES.write_text(rules())


if __name__ == "__main__":
    main()
