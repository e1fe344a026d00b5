"""`python -m oldhost_sync.planner`: a question on standard input, its answer on standard output (see question.py)."""

from __future__ import annotations

import os
import sys

from oldhost_sync.planner.question import Question, answer

# Low priority: the process that asks has more urgent work.
NICE = 10


def main() -> None:
    os.nice(NICE)
    sys.stdout.write(answer(Question.from_json(sys.stdin.read())).to_json())


if __name__ == "__main__":
    main()
