"""Rules whose bodies another package's code makes: what it may do, and what is told when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.drivers.mapping import ChangeContent, Code, CodeMissing, HostMapping, NotMapped, from_text, to_text
from oldhost_sync.oldhost.mapping_file import read_mapping
from oldhost_sync.policy.limits import HOST_BODY_BYTES_MAX
from tests.architecture.project_files import ROOT
from tests.conformance.offered_code import forget, offer

Offer = Callable[..., None]

INVOICE = ChangeContent("bill", "7", "invoice_created", {"total": 4711}, 42, "key-1")
RULE = HostMapping("tax", "1", {"*": Code("invoice", "tax 1.2")})
PLAIN = "def encode(change):\n    return b'%d %d' % (change.payload['total'], change.change_id)"


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Installs code."""

    def install(source: str, **more: str) -> None:
        offer(tmp_path, monkeypatch, source, **more)

    forget()
    yield install
    forget()


def refused(change: ChangeContent = INVOICE) -> NotMapped:
    with pytest.raises(NotMapped) as caught:
        RULE.check(change)
    return caught.value


def test_the_body_is_what_the_code_gives(offered: Offer) -> None:
    offered(PLAIN)
    RULE.check(INVOICE)
    encoded = RULE.encode(INVOICE)
    assert (encoded.body, encoded.mapping) == (b"4711 42", "tax/1")


def test_what_tells_changes_apart_is_no_part_of_the_state(offered: Offer) -> None:
    offered(PLAIN)
    later, other = replace(INVOICE, change_id=43, idempotency_key="k"), replace(INVOICE, payload={"total": 1})
    assert RULE.encode(later).body != RULE.encode(INVOICE).body
    assert RULE.encode(later).state_hash == RULE.encode(INVOICE).state_hash != RULE.encode(other).state_hash
    assert replace(RULE, version="2").encode(INVOICE).state_hash != RULE.encode(INVOICE).state_hash


def test_code_can_not_change_the_change(offered: Offer) -> None:
    offered("def encode(change):\n    change.payload['total'] += 1\n    return str(change.payload).encode()")
    RULE.check(INVOICE)
    assert INVOICE.payload == {"total": 4711}


@pytest.mark.parametrize(
    ("raised", "field", "what"),
    [
        ("KeyError(change.payload['total'])", "payload", "KeyError"),
        ("InvalidChange('4711 is wrong', 'payload.total')", "payload.total", "InvalidChange"),
        ("InvalidChange('4711 is wrong', '4711')", "payload", "InvalidChange"),
        ("InvalidChange('', f\"payload.{change.payload['total']}\")", "payload", "InvalidChange"),
        ("RecursionError('4711')", "payload", "RecursionError"),
    ],
)
def test_an_exception_is_told_without_any_value(offered: Offer, raised: str, field: str, what: str) -> None:
    offered(f"from oldhost_sync import InvalidChange\ndef encode(change):\n    raise {raised}")
    found = refused()
    assert found.field == field
    why = f"the code invoice of mapping tax/1 raises {what} for event type invoice_created"
    assert str(found) == f"{field} can't be mapped: {why}"


@pytest.mark.parametrize("gives", ["None", "'text'", "bytearray(b'x')", "{}"])
def test_only_bytes_are_a_body(offered: Offer, gives: str) -> None:
    offered(f"def encode(change):\n    return {gives}")
    why = "the code invoice of mapping tax/1 gives no bytes for event type invoice_created"
    assert str(refused()) == f"payload can't be mapped: {why}"


def test_a_body_over_64_kib_is_refused(offered: Offer) -> None:
    offered("def encode(change):\n    return b'x' * change.payload['total']")
    RULE.check(replace(INVOICE, payload={"total": HOST_BODY_BYTES_MAX}))
    why = refused(replace(INVOICE, payload={"total": HOST_BODY_BYTES_MAX + 1}))
    assert str(why) == "payload is too large: by mapping tax/1 its operation is over OldHost's 65536 bytes"


@pytest.mark.parametrize("value", ["uuid.uuid4().hex", "next(numbers)", "time.monotonic_ns()"])
def test_code_that_gives_another_body_each_time_is_refused(offered: Offer, value: str) -> None:
    head = "import itertools, time, uuid\nnumbers = itertools.count()\n"
    offered(f"{head}def encode(change):\n    return str({value}).encode()")
    assert str(refused()) == "payload can't be mapped: mapping tax/1 gives another body each time"


def test_where_the_code_is_not_installed_nothing_can_be_said() -> None:
    with pytest.raises(CodeMissing, match=r"^mapping tax/1 needs the entry point invoice, and no package here has it$"):
        RULE.check(INVOICE)
    assert RULE.lacks() == "mapping tax/1 needs the entry point invoice, and no package here has it"


def test_with_its_code_a_mapping_lacks_nothing(offered: Offer) -> None:
    offered(PLAIN)
    assert RULE.lacks() == ""


FILE = 'name = "tax"\n[rules."*"]\npreset = "oldhost"\n[rules.invoice_created]\ncode = "invoice"\n'


def read(tmp_path: Path, text: str = FILE) -> HostMapping:
    path = tmp_path / "tax.toml"
    path.write_text(text)
    return read_mapping(path)


def test_a_file_names_the_code_and_the_database_has_it_with_its_package(offered: Offer, tmp_path: Path) -> None:
    offered(PLAIN)
    mapping = read(tmp_path)
    assert mapping.rules["invoice_created"] == Code("invoice", "tax 1.2")
    assert from_text(to_text(mapping)) == mapping
    assert mapping.encode(INVOICE).body == b"4711 42"


def test_another_release_of_the_code_is_another_version(offered: Offer, tmp_path: Path) -> None:
    offered(PLAIN)
    before = read(tmp_path).version
    (tmp_path / "tax-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: tax\nVersion: 1.3\n")
    forget()
    assert read(tmp_path).version != before


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "no entry point of oldhost_sync.mappings: it can't be loaded here (AttributeError)"),
        ("import nothing", "no entry point of oldhost_sync.mappings: it can't be loaded here (ModuleNotFoundError)"),
        ("encode = 1", "no entry point of oldhost_sync.mappings: it is no function"),
        (None, "no entry point of oldhost_sync.mappings: no package here has it"),
    ],
)
def test_code_that_is_not_there_is_a_mistake_of_the_file(
    offered: Offer, tmp_path: Path, source: str | None, why: str
) -> None:
    if source is not None:
        offered(source)
    with pytest.raises(ValueError, match="code: is ") as found:
        read(tmp_path)
    assert str(found.value) == f"{tmp_path}/tax.toml, line 5: rules.invoice_created.code: is {why}"


def test_two_packages_with_the_same_entry_point_are_a_mistake(offered: Offer, tmp_path: Path) -> None:
    offered(PLAIN)
    offered(PLAIN, package="duty")
    with pytest.raises(ValueError, match="several packages here have it"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        ("code = 1", "line 5: rules.x.code: must be the name of an entry point"),
        ('code = "os:system"', "line 5: rules.x.code: must be the name of an entry point"),
        ('code = "invoice"\nfields = {}', "line 6: rules.x.fields: is not a key of this rule"),
        ('code = "invoice"\npreset = "oldhost"', "line 5: rules.x.code: is not a key of this rule"),
    ],
)
def test_a_rule_is_code_or_something_else(offered: Offer, tmp_path: Path, rule: str, mistake: str) -> None:
    offered(PLAIN)
    with pytest.raises(ValueError, match=mistake):
        read(tmp_path, f'name = "tax"\n[rules."*"]\npreset = "oldhost"\n[rules.x]\n{rule}')


PAGE = (ROOT / "docs" / "mapping.md").read_text()


def test_the_examples_of_the_page_are_right(offered: Offer, tmp_path: Path) -> None:
    offered(PAGE.partition("```python\n")[2].partition("```")[0])
    assert RULE.encode(INVOICE).body == b'{"id": "7", "cents": 4711}'
    assert refused(replace(INVOICE, payload={})).field == "payload.total"
    assert read(tmp_path, PAGE.partition("```toml\n")[2].partition("```")[0]).label == "rooms/3"
