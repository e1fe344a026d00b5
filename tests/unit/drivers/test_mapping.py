"""What a mapping makes of a change; its file; and that OldHost's own form is what it always was, byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers.mapping import (
    OLDHOST,
    RESERVED_NAMES,
    ChangeContent,
    HostMapping,
    NotMapped,
    from_text,
    payload_hash,
    to_text,
    too_large,
)
from oldhost_sync.oldhost.mapping_file import FILE_BYTES_MAX, read_mapping

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
STATUS = ChangeContent("unit", "12B", "unit_status_changed", {"status": "Cléan", "event_id": 1}, 4711, "key-1")
SHORT = """
name = "rooms"
[rules.unit_status_changed]
fields = { unit_id = "/entity_id", status = "/payload/status" }
"""


def mapping_of(tmp_path: Path, text: str) -> HostMapping:
    path = tmp_path / "mapping.toml"
    path.write_text(text)
    return read_mapping(path)


def mistakes_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ValueError) as refused:
        mapping_of(tmp_path, text)
    return str(refused.value).replace(f"{tmp_path}/", "").split("; ")


# ------------------------------------------------------------------------------------------------ OldHost's own form


def body_of(entity_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    return json.loads(  # type: ignore[no-any-return]
        OLDHOST.encode(ChangeContent(entity_type, "7", "unit_status_changed", payload, 42, "k")).body
    )


@pytest.mark.parametrize(
    ("change", "body"),
    [
        (
            STATUS,
            (
                b'{"entity_type":"unit","entity_id":"12B","event_type":"unit_status_changed",'
                b'"payload":{"status":"Cl\\u00e9an","event_id":1},"event_id":4711,"idempotency_key":"key-1",'
                b'"unit_id":"12B","status":"Cl\\u00e9an"}'
            ),
        ),
        (
            replace(STATUS, entity_type="booking", payload={}),
            (
                b'{"entity_type":"booking","entity_id":"12B","event_type":"unit_status_changed","payload":{},'
                b'"event_id":4711,"idempotency_key":"key-1"}'
            ),
        ),
    ],
)
def test_the_presets_bytes_stay(change: ChangeContent, body: bytes) -> None:
    encoded = OLDHOST.encode(change)
    assert (encoded.body, encoded.mapping, encoded.state_hash) == (body, "oldhost/1", payload_hash(change.payload))


def test_a_units_fields_are_lifted_and_its_id_is_named() -> None:
    body = body_of("unit", {"status": "Clean"})
    assert (body["unit_id"], body["status"], body["payload"]) == ("7", "Clean", {"status": "Clean"})


@given(payload=st.dictionaries(st.sampled_from(RESERVED_NAMES) | st.text(max_size=5), scalars))
def test_a_lifted_field_never_overwrites_the_pages_names(payload: dict[str, Any]) -> None:
    try:
        body = body_of("unit", payload)
    except ValueError:
        return  # NaN and infinities are no JSON; recording refuses them before
    plain = body_of("unit", {})
    assert {name: body[name] for name in RESERVED_NAMES if name != "payload"} == {
        name: plain[name] for name in RESERVED_NAMES if name != "payload"
    }
    assert body["payload"] == payload


def test_over_64_kib_is_too_large() -> None:
    assert not too_large(b"x" * 65_536)
    assert too_large(b"x" * 65_537)


# ------------------------------------------------------------------------------------------------- a mapping of its own


def test_the_body_is_what_the_file_says_in_its_order(tmp_path: Path) -> None:
    mapping = mapping_of(tmp_path, SHORT)
    assert mapping.encode(STATUS).body == b'{"unit_id":"12B","status":"Cl\\u00e9an"}'


def test_names_nest_and_pointers_reach_into_lists(tmp_path: Path) -> None:
    mapping = mapping_of(
        tmp_path,
        """
        name = "deep"
        [rules."*"]
        fields = { "/data/first" = "/payload/list/0/a~1b", "/data/id" = "/change_id", all = "/payload" }
        constants = { "/data/by" = "desk", since = 3 }
        """,
    )
    payload = {"list": [{"a/b": True}]}
    body = json.loads(mapping.encode(replace(STATUS, payload=payload)).body)
    assert body == {"data": {"first": True, "id": 4711, "by": "desk"}, "all": payload, "since": 3}


@pytest.mark.parametrize("payload", [{}, {"Status": "secret"}, {"status_": "secret"}])
def test_without_a_required_field_the_change_is_invalid_and_no_value_is_said(
    tmp_path: Path, payload: dict[str, Any]
) -> None:
    mapping = mapping_of(tmp_path, f'version = "3"{SHORT}')
    with pytest.raises(NotMapped) as refused:
        mapping.check(replace(STATUS, payload=payload))
    why = "mapping rooms/3 needs /payload/status for event type unit_status_changed"
    assert (str(refused.value), refused.value.field) == (f"payload.status is missing: {why}", "payload.status")


def test_an_optional_field_is_left_out_and_null_is_a_value(tmp_path: Path) -> None:
    mapping = mapping_of(tmp_path, SHORT + 'optional = ["status"]')
    assert mapping.encode(replace(STATUS, payload={})).body == b'{"unit_id":"12B"}'
    assert mapping.encode(replace(STATUS, payload={"status": None})).body == b'{"unit_id":"12B","status":null}'


def test_the_most_special_rule_decides(tmp_path: Path) -> None:
    rules = "\n".join(
        f'[rules."{key}"]\nconstants = {{ rule = "{key}" }}'
        for key in ("checked_in/unit", "checked_in", "*/room", "*/unit")
    )
    mapping = mapping_of(tmp_path, f'name = "n"\n{rules}')

    def rule(event_type: str, entity_type: str) -> str:
        change = ChangeContent(entity_type, "1", event_type, {})
        return json.loads(mapping.encode(change).body)["rule"]  # type: ignore[no-any-return]

    assert rule("checked_in", "unit") == "checked_in/unit"
    assert rule("checked_in", "room") == "checked_in"
    assert rule("checked_out", "room") == "*/room"
    with pytest.raises(NotMapped, match="has no rule for event type checked_out of booking"):
        rule("checked_out", "booking")


def test_a_rule_may_be_oldhosts_own_form(tmp_path: Path) -> None:
    mapping = mapping_of(tmp_path, f'{SHORT}\n[rules."*"]\npreset = "oldhost"')
    other = replace(STATUS, event_type="checked_in")
    assert mapping.encode(other).body == OLDHOST.encode(other).body


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    twice = 'name = "n"\n[rules."*"]\nfields = { a = "/payload", b = "/payload", c = "/payload" }'
    with pytest.raises(NotMapped, match="over OldHost's 65536 bytes") as refused:
        mapping_of(tmp_path, twice).check(replace(STATUS, payload={"text": "x" * 25_000}))
    assert refused.value.field == "payload"


def test_equal_states_have_equal_hashes_whichever_change_brought_them(tmp_path: Path) -> None:
    text = SHORT.replace("fields = {", 'fields = { id = "/change_id", key = "/idempotency_key",')
    mapping = mapping_of(tmp_path, text)
    again = replace(STATUS, change_id=4712, idempotency_key="key-2", payload={"status": "Cléan", "unmapped": 2})
    dirty = replace(STATUS, payload={"status": "Dirty"})
    hashes = [mapping.encode(change).state_hash for change in (STATUS, again, dirty)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_another_mapping_or_version_is_another_state(tmp_path: Path) -> None:
    names = ('name = "rooms"\nversion = "1"', 'name = "rooms"\nversion = "2"', 'name = "other"')
    mappings = [mapping_of(tmp_path, SHORT.replace('name = "rooms"', name)) for name in names]
    more = mapping_of(tmp_path, f'version = "1"{SHORT}constants = {{ a = 1 }}')
    assert len({mapping.encode(STATUS).state_hash for mapping in (*mappings, more, OLDHOST)}) == 5


def test_the_version_follows_from_the_rules_if_none_is_given(tmp_path: Path) -> None:
    first, same = mapping_of(tmp_path, SHORT), mapping_of(tmp_path, f"# a remark\n{SHORT}")
    other = mapping_of(tmp_path, SHORT.replace("/payload/status", "/payload/state"))
    assert first.label == same.label != other.label


def test_what_is_stored_is_read_as_it_was(tmp_path: Path) -> None:
    mapping = mapping_of(
        tmp_path, f'{SHORT}optional = ["status"]\nconstants = {{ "/a/b" = [1] }}\n[rules."*"]\npreset = "oldhost"'
    )
    for each in (mapping, OLDHOST):
        assert from_text(to_text(each)) == each


# ------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('name = "n"', "line 1: rules: must be a table of 1 to 200 rules"),
        (SHORT.replace('"rooms"', '"a b"'), "line 2: name: must be text of 1 to 32 letters, digits, or . _ -"),
        (SHORT.replace('"rooms"', '"oldhost"'), "line 2: name: 'oldhost' is the preset's name"),
        (f"more = 1{SHORT}", "line 1: more: is not a key of this file"),
        (
            f"{SHORT}[rules.'a b']\npreset='oldhost'",
            "line 5: rules.'a b': must be an event type, * or event type/entity type",
        ),
        (f"{SHORT}field = 1", "line 5: rules.unit_status_changed.field: is not a key of this rule"),
        (f"{SHORT}optional = ['x']", "line 5: rules.unit_status_changed.optional: must be a list of names of `fields`"),
        (
            SHORT.replace("/payload/status", "payload.status"),
            (
                "line 4: rules.unit_status_changed.fields.status: must be a JSON pointer into the change, such as "
                "/payload/status"
            ),
        ),
        (
            SHORT.replace("/payload/status", "/source"),
            (
                "line 4: rules.unit_status_changed.fields.status: must begin with one of /entity_type, /entity_id, "
                "/event_type, /payload, /change_id, /idempotency_key"
            ),
        ),
        (
            SHORT.replace("/entity_id", "/entity_id/x"),
            "line 4: rules.unit_status_changed.fields.unit_id: /entity_id has no parts",
        ),
        (
            f"{SHORT}constants = {{ unit_id = 1 }}",
            "line 5: rules.unit_status_changed.constants.unit_id: has the place of another output",
        ),
        (
            f"{SHORT}[rules.x.constants]\nday = 2026-01-01",
            "line 6: rules.x.constants.day: it has a date, which is not a JSON type",
        ),
        (f"{SHORT}[rules.x]\npreset = 'other'", "line 6: rules.x.preset: must be 'oldhost'"),
        (f"{SHORT}[rules.x]", "line 5: rules.x: must have 1 to 100 fields and constants"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(tmp_path: Path, text: str, mistake: str) -> None:
    assert mistakes_of(tmp_path, text) == [f"mapping.toml, {mistake}"]


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = SHORT.replace("/entity_id", "x").replace("/payload/status", "y").replace('"rooms"', "1")
    assert len(mistakes_of(tmp_path, text)) == 3


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"name = \nversion = 1", "toml, line 1: Invalid value"),
        (b"\xff", "is not UTF-8"),
        (b"#" * (FILE_BYTES_MAX + 1), f"is larger than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    path = tmp_path / "mapping.toml"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=why):
        read_mapping(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mapping\.toml can't be read: No such file"):
        read_mapping(tmp_path / "mapping.toml")


# ----------------------------------------------------------------------------------------------- a method and a path

PUT = """
name = "rooms"
[rules.unit_status_changed]
method = "PUT"
path = "/hotels/7/units/{/entity_id}/status"
fields = { status = "/payload/status" }
"""


def routed(tmp_path: Path, path: str, **of_change: Any) -> str:
    """The first line of what a change is made into."""
    text = f'name = "rooms"\n[rules."*"]\npath = "{path}"\nfields = {{ by = "/idempotency_key" }}\n'
    encoded = mapping_of(tmp_path, text).encode(replace(STATUS, **of_change))
    return encoded.body.partition(b"\n")[0].decode()


def test_method_and_path_are_part_of_the_bytes(tmp_path: Path) -> None:
    assert mapping_of(tmp_path, PUT).encode(STATUS).body == (
        b'PUT /hotels/7/units/12B/status\n{"status":"Cl\\u00e9an"}'
    )


def test_the_preset_may_have_a_path_too(tmp_path: Path) -> None:
    text = 'name = "rooms"\n[rules."*"]\npath = "/sync"\npreset = "oldhost"\n'
    assert mapping_of(tmp_path, text).encode(STATUS).body == b"POST /sync\n" + OLDHOST.encode(STATUS).body


@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("?x#y", "%3Fx%23y"),
        ("é", "%C3%A9"),
        ("100%", "100%25"),
        ("...", "..."),
        (7, "7"),
    ],
)
def test_a_value_in_a_path_is_one_segment(tmp_path: Path, value: object, segment: str) -> None:
    assert routed(tmp_path, "/u/{/payload/x}/s", payload={"x": value}) == f"POST /u/{segment}/s"


@pytest.mark.parametrize("value", ["", ".", "..", "a\nb", "a\0", "\ud800", None, True, 1.5, [1], {"a": 1}])
def test_a_value_that_can_not_stand_in_a_path_is_refused_by_its_field(tmp_path: Path, value: object) -> None:
    with pytest.raises(NotMapped, match=r"payload\.x can't stand in a path") as refused:
        routed(tmp_path, "/u/{/payload/x}", payload={"x": value})
    assert refused.value.field == "payload.x"
    with pytest.raises(NotMapped, match=r"payload\.x is missing"):
        routed(tmp_path, "/u/{/payload/x}", payload={})
    with pytest.raises(NotMapped, match="is too large"):
        routed(tmp_path, "/u/{/payload/x}", payload={"x": "x" * 3000})


def test_the_place_of_the_number_stays_open(tmp_path: Path) -> None:
    assert routed(tmp_path, "/u/{/entity_id}/{number}") == "POST /u/12B/{number}"
    assert routed(tmp_path, "/u/{/payload/x}", payload={"x": "{number}"}) == "POST /u/%7Bnumber%7D"


def test_a_path_is_part_of_the_state_but_for_what_tells_equal_ones_apart(tmp_path: Path) -> None:
    def state(path: str, change: ChangeContent) -> bytes:
        text = PUT.replace("/hotels/7/units/{/entity_id}/status", path)
        return mapping_of(tmp_path, f"{text}").encode(change).state_hash

    other = replace(STATUS, change_id=4712, idempotency_key="key-2")
    for path in ("/u/{/change_id}", "/u/{/idempotency_key}/{number}", "/u/{/entity_id}"):
        assert state(path, STATUS) == state(path, other)
    assert state("/u/{/entity_id}", STATUS) != state("/u/{/entity_id}", replace(STATUS, entity_id="12C"))
    assert state("/u/1", STATUS) != state("/u/2", STATUS)


def test_a_rule_with_a_path_is_stored_as_it_is(tmp_path: Path) -> None:
    for text in (PUT, 'name = "r"\n[rules."*"]\npath = "/sync"\npreset = "oldhost"\n'):
        mapping = mapping_of(tmp_path, text)
        assert mapping.has_paths
        assert from_text(to_text(mapping)) == mapping
    assert not mapping_of(tmp_path, SHORT).has_paths


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('method = "GET"\npath = "/x"', "method: must be one of POST, PUT, PATCH, DELETE"),
        ('method = "PUT"', "method: is given without a path"),
        *(
            (f'path = "{path}"', "path: must be a path such as /units/{/entity_id}/status")
            for path in ("x", "/", "/a b", "/a/../b", "/./b", "/a?b=1", "//a", "/a/", "/{", "/{}", "https://x/y")
        ),
        ('path = "/u/{entity_id}"', "path: what is in braces must be a JSON pointer into the change"),
        ('path = "/u/{/secret}"', "path: what is in braces must begin with one of /entity_type"),
        ('path = "/u/{/entity_id/x}"', "path: what is in braces /entity_id has no parts"),
        ("path = 7", "path: must be a path"),
    ],
)
def test_a_wrong_path_is_told_with_its_line(tmp_path: Path, lines: str, why: str) -> None:
    (found,) = mistakes_of(tmp_path, f'name = "rooms"\n[rules."*"]\npreset = "oldhost"\n{lines}\n')
    assert found.startswith("mapping.toml, line 4: ")
    assert why in found
