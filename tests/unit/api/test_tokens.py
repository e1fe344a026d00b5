"""A token is known by its hash alone."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from oldhost_sync.api.access import Caller, Tokens
from oldhost_sync.settings import ApiToken, Role
from oldhost_sync.watched_file import LOOKED_AT_EVERY_SECONDS

TOKENS = Tokens([ApiToken(name, Role.APP, hashlib.sha256(name.encode()).hexdigest()) for name in ("first", "last")])


@pytest.mark.parametrize("name", ["first", "last"])
def test_a_known_token_is_found_wherever_it_stands(name: str) -> None:
    assert TOKENS.identify(f"Bearer {name}".encode()) == Caller(name, Role.APP)


def test_the_scheme_s_case_does_not_matter() -> None:
    assert TOKENS.identify(b"bEARER first") is not None


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", b"Bearer firs", b"Bearer firstx", b"Basic first", b"first"]
)
def test_anything_else_is_nobody(header: bytes | None) -> None:
    assert TOKENS.identify(header) is None


def known_as(secret: str, name: str = "shop", last_day: date | None = None, role: Role = Role.APP) -> ApiToken:
    return ApiToken(name, role, hashlib.sha256(secret.encode()).hexdigest(), last_day)


def bearer(secret: str) -> bytes:
    return f"Bearer {secret}".encode()


class Hour:
    """A time of day and a clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2027, 1, 31, 23, 59, tzinfo=UTC)
        self.seconds = 0.0

    def tokens(self, *tokens: ApiToken, file: Path | None = None) -> Tokens:
        return Tokens(tokens, file=file, now=lambda: self.now, clock=lambda: self.seconds)


def test_a_token_is_compared_with_one_of_the_known_ones_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"app-{number}" for number in range(500)]
    tokens = Tokens([known_as(f"secret of {name}", name) for name in names])
    compared, compare = [], hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    assert [tokens.identify(bearer(f"secret of {name}")) for name in names] == [Caller(n, Role.APP) for n in names]
    assert [tokens.owner(name, known_as(f"secret of {name}").fingerprint) is not None for name in names] == [True] * 500
    assert len(compared) == 1_000
    assert tokens.identify(bearer("nobody's")) is None
    assert len(compared) == 1_000


def test_two_names_may_have_one_token_and_each_is_its_owner() -> None:
    tokens = Tokens([known_as("same", "anna"), known_as("same", "ben")])
    assert tokens.identify(bearer("same")) == Caller("ben", Role.APP)
    fingerprint = known_as("same").fingerprint
    assert tokens.owner("anna", fingerprint) == Caller("anna", Role.APP)
    assert tokens.owner("ben", fingerprint) == Caller("ben", Role.APP)
    assert (tokens.knows("anna"), tokens.knows("carl")) == (True, False)


def test_a_token_is_valid_through_its_last_day() -> None:
    hour = Hour()
    tokens = hour.tokens(known_as("s", last_day=date(2027, 1, 31)))
    assert tokens.identify(bearer("s")) is not None
    hour.now = datetime(2027, 2, 1, tzinfo=UTC)
    assert tokens.identify(bearer("s")) is None
    assert tokens.owner("shop", known_as("s").fingerprint) is None
    assert tokens.why_refused(bearer("s")) == "the token of shop, which has expired"


def test_why_a_token_is_refused_says_nothing_of_it() -> None:
    assert TOKENS.why_refused(None) == "no token"
    assert TOKENS.why_refused(b"Bearer hunter2") == "an unknown token"


def test_a_token_and_its_successor_are_both_known_until_the_last_day() -> None:
    hour = Hour()
    tokens = hour.tokens(known_as("new"), known_as("old", last_day=date(2027, 1, 31)))
    for secret in ("old", "new"):
        assert tokens.identify(bearer(secret)) == Caller("shop", Role.APP)
    hour.now = datetime(2027, 2, 1, tzinfo=UTC)
    assert tokens.identify(bearer("old")) is None
    assert tokens.identify(bearer("new")) is not None


def test_an_owner_is_known_by_the_token_that_was_used_not_by_its_successor() -> None:
    old, new = known_as("old", last_day=date(2027, 1, 31)), known_as("new")
    assert Tokens([new]).owner("shop", old.fingerprint) is None
    assert Hour().tokens(old, new).owner("shop", old.fingerprint) == Caller("shop", Role.APP)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"# the shop's\n\n{known_as('first').entry}  # since May\n")
    return file


def rewrites(file: Path, hour: Hour) -> Callable[[str], None]:
    def rewrite(text: str) -> None:
        file.write_text(text)
        hour.seconds += LOOKED_AT_EVERY_SECONDS

    return rewrite


def test_a_token_of_the_file_counts_and_is_taken_away_without_a_restart(file: Path) -> None:
    hour = Hour()
    tokens, rewrite = hour.tokens(known_as("set", "anna"), file=file), rewrites(file, hour)
    assert tokens.identify(bearer("first")) == Caller("shop", Role.APP)
    rewrite(known_as("second one", "kiosk").entry)
    assert tokens.identify(bearer("first")) is None
    assert tokens.identify(bearer("second one")) == Caller("kiosk", Role.APP)
    assert tokens.identify(bearer("set")) == Caller("anna", Role.APP)


@pytest.mark.parametrize("text", ["nonsense", "shop:app:beef", known_as("x", "anna", role=Role.OPS).entry])
def test_a_file_that_makes_no_sense_changes_nothing_and_is_told(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    hour = Hour()
    tokens, rewrite = hour.tokens(known_as("set", "anna"), file=file), rewrites(file, hour)
    rewrite(text)
    assert tokens.identify(bearer("first")) is not None
    assert "SYNC_API_TOKENS_FILE can't be used, so what was known before stays valid" in caplog.text
    file.unlink()
    hour.seconds += LOOKED_AT_EVERY_SECONDS
    assert tokens.identify(bearer("first")) is not None


def test_a_wrong_line_of_the_file_is_named_at_the_start(file: Path) -> None:
    file.write_text("# one\n\nshop:boss:beef\n")
    with pytest.raises(ValueError, match=r"token 3 \(shop\) has the role 'boss'"):
        Tokens([], file=file)


def test_a_file_is_looked_at_once_a_second(file: Path) -> None:
    tokens = Hour().tokens(file=file)
    file.write_text("")
    assert tokens.identify(bearer("first")) is not None


def test_each_used_token_is_told_once() -> None:
    tokens = Tokens([known_as("a", "shop"), known_as("b", "kiosk")])
    for _ in range(3):
        tokens.identify(bearer("a"))
    tokens.identify(bearer("neither"))
    assert tokens.take_used() == {known_as("a").fingerprint: "shop"}
    assert tokens.take_used() == {}
