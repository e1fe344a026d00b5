"""What makes two alerts the same, what makes one worse, and who may close it."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.events import Said
from oldhost_sync.policy.rules.alert_cause import LENGTH_MAX, LOOKED_AT, cause_of
from oldhost_sync.policy.rules.alert_kinds import KINDS, SEVERITIES, grew, may_close, worse


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such door 17", "no such door 4,711"),
        ("guest 'Ada' is unknown", "guest 'Bob' is unknown"),
        ('unit "12B" can\'t be locked', 'unit "7" can\'t be locked'),
        ("no 0b9d6a1e-6f0e-4a6e-8d5f-0123456789ab", "no 11111111-2222-3333-4444-555555555555"),
        ("no guest 9f86d081884c7d65", "no guest 2c26b46b68ffc68ff99b453c1d304134"),
        ("no key_dcaffe0123456789abcd", "no key_0123456789abcdef0123"),
        ("too\n  late", "too late"),
        (None, ""),
    ],
)
def test_texts_that_differ_only_in_what_they_are_about_have_one_cause(one: str | None, other: str) -> None:
    assert cause_of(one) == cause_of(other)


@pytest.mark.parametrize("before", ["", "unsure: "])
@pytest.mark.parametrize("body", ['{"oops":"Ms Miller is unknown"}', "Ms Miller is unknown", "<b>Miller</b>"])
@pytest.mark.parametrize("kind", ["status 422", "code 17", "answer"])
def test_of_an_answer_that_is_not_the_protocols_only_its_kind_is_told(before: str, body: str, kind: str) -> None:
    assert cause_of(f"{before}{Said(kind, body)}") == f"{before}{kind}"


@pytest.mark.parametrize(
    ("one", "other"), [("no such door", "no such guest"), ("can't open, don't ask", "can't close, don't ask")]
)
def test_other_words_are_another_cause(one: str, other: str) -> None:
    assert cause_of(one) != cause_of(other)


def test_a_cause_fits_into_a_key_beside_the_longest_kind() -> None:
    assert len(cause_of("x" * 5000)) == LENGTH_MAX
    assert max(map(len, KINDS)) + 1 + LENGTH_MAX <= 128


def test_a_cause_depends_on_no_more_of_a_text_than_the_store_reads() -> None:
    text = "a door 17 b " * 50
    assert cause_of(text) == cause_of(text[: LOOKED_AT * LENGTH_MAX])
    assert cause_of(text).count("#") == cause_of(text).count("door")


@pytest.mark.parametrize(("before", "after", "said"), [(1, 9, False), (9, 10, True), (10, 99, False), (5, 1000, True)])
def test_people_hear_of_a_count_at_each_power_of_ten(before: int, after: int, said: bool) -> None:
    assert grew(before, after) is said


def test_the_worse_of_two_severities_is_kept() -> None:
    for one in SEVERITIES:
        for other in SEVERITIES:
            assert worse(one, other) == SEVERITIES[max(SEVERITIES.index(one), SEVERITIES.index(other))]


def test_people_may_close_what_informs_and_what_no_code_knows_any_more() -> None:
    assert [kind for kind in KINDS if may_close(kind) != KINDS[kind].informational] == []
    assert may_close("of-an-older-release")
