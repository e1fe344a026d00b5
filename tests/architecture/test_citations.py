"""The repository stands on its own: whatever it cites is in it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.project_files import ROOT, project_files, text_of

DOCS = ROOT / "docs"
HERE = Path(__file__).resolve()
ELSEWHERE = re.compile(
    r"design §|(?:the|of) brief\b|brief's|brief\.md|oldhost-protocol|protocol page|"
    r"fault[- ]programme(?:\.md|'s| §|,)|faults-2|house-2|policy-2|house-style",
    re.IGNORECASE,
)
TRAPS = re.compile(r"\btraps? (\d+(?:(?:, | and )\d+)*)|test_trap_(\d+)_")
INVARIANT = re.compile(r"\bI(1[0-9]|[1-9])\b")
PAGE = re.compile(r"\bdocs/((?:[a-z-]+/)?[a-z-]+\.md)")
# docs/page.md, "Title" · [page.md](page.md), "Title" · page.md#anchor, also of the page itself: (#anchor).
SECTION = re.compile(r'\b([a-z-]+\.md)(?:`|\))*,? \(?"([^"]+)"')
ANCHOR = re.compile(r"\b([a-z-]+\.md)#([a-z0-9-]+)(?![a-z0-9{-])")
ANCHOR_HERE = re.compile(r"\]\(#([^)]+)\)")
FILE = re.compile(r"`((?:tests|bench|oldhost_sync|workflows|activities|migrations)/[a-z_/]+(?:\.py|\.md)?)`")


def cited(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """What is cited, and by which files."""
    found: dict[str, list[str]] = {}
    for path in project_files():
        if path.suffix in {".py", ".md", ".toml", ".yml", ""} and path.resolve() != HERE:
            for match in pattern.finditer(text_of(path) or ""):
                found.setdefault(next(filter(None, match.groups()), match[0]), []).append(str(path.relative_to(ROOT)))
    return found


def headings(page: str) -> set[str]:
    return {line[3:].strip() for line in (DOCS / page).read_text().splitlines() if line.startswith("## ")}


def titles(page: str) -> list[str]:
    """Of the page's sections at every depth, and the bold words that begin a paragraph."""
    (path,) = [path for path in project_files() if path.name == page]
    return re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) + lead_words(path)


def lead_words(path: Path) -> list[str]:
    return re.findall(r"^(?:- )?\*\*([^*]+?)\.?\*\*", path.read_text(), re.MULTILINE)


def anchors(page: str) -> set[str]:
    """As GitHub makes them of titles, and those that a page sets itself."""
    (path,) = [path for path in project_files() if path.name == page]
    made = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    }
    return made | set(re.findall(r'<a (?:id|name)="([^"]+)"', path.read_text()))


def test_nothing_outside_the_repository_is_cited() -> None:
    assert cited(ELSEWHERE) == {}


def test_each_trap_that_is_named_is_described() -> None:
    named = {int(number) for numbers in cited(TRAPS) for number in re.findall(r"\d+", numbers)}
    assert {f"Trap {number}" for number in named} == headings("hazards.md")


def test_each_trap_has_a_test_of_its_name() -> None:
    named = {f"Trap {int(number)}" for number in cited(re.compile(r"def test_trap_(\d+)_"))}
    assert headings("hazards.md") == named


def test_each_invariant_that_is_named_is_described() -> None:
    assert {f"I{number}" for number in cited(INVARIANT)} == headings("invariants.md")


def test_each_page_that_is_cited_exists() -> None:
    missing = {page: where for page, where in cited(PAGE).items() if not (DOCS / page).exists()}
    assert missing == {}


def test_each_file_that_a_document_names_exists() -> None:
    missing = {name: where for name, where in cited(FILE).items() if not (ROOT / name).exists()}
    assert missing == {}


def test_each_section_that_is_cited_by_its_title_exists() -> None:
    cited_titles = [
        (path.name, page, title)
        for path in project_files()
        if path.suffix in {".py", ".md"} and path.resolve() != HERE
        for page, title in SECTION.findall(text_of(path) or "")
    ]
    assert len(cited_titles) > 1
    assert [each for each in cited_titles if each[2] not in titles(each[1])] == []


def test_each_anchor_that_is_cited_exists() -> None:
    cited_anchors = [
        (path.name, page, anchor)
        for path in project_files()
        if path.suffix in {".py", ".md"} and path.resolve() != HERE
        for page, anchor in [
            *ANCHOR.findall(text_of(path) or ""),
            *((path.name, anchor) for anchor in ANCHOR_HERE.findall(text_of(path) or "")),
        ]
    ]
    assert len(cited_anchors) > 1
    assert [each for each in cited_anchors if each[2] not in anchors(each[1])] == []
