"""Odd values in every query parameter and path of every GET route: never a 5xx, and no value is taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]

ODD = [
    "", " ", "0", "-0", "-1", "1", "00", "+1", "1.0", "1.", ".5", "1e3", "1e999", "-1e999", "nan", "inf", "Infinity",
    "1_000", "0x10", "٣", "１", "²", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 19,
    "9" * 40, "9" * 5000, "true", "True", "yes", "null", "[]", "{}", "\x00", "a\x00b", "\r\n", "\x1b[2J", "\x7f",
    "\u202e", "\ufeff", "🏠", "ü" * 300, "x" * 5000, "%", "%25", "_", "\\", "'", "' OR '1'='1", '"', ";", "../..",
    "a/b", "//", "?", "#", "&", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9998-12-31T23:59:59-23:59",
    "1970-01-01T00:00:00Z", "2026-05-01", "f0.0.0", "f9.9.9", "f1.999999999999999999.1", "latest",
    "f999999999999999999.253402300799000000.999999999999999999", "MTk3MC0wMS0wMVQwMDowMDowMCAx", "AA", "gICA", "7aCA",
    "OTk5OS0xMi0zMVQyMzo1OTo1OSAx", "MDAwMS0wMS0wMVQwMDowMDowMCAx",
]  # fmt: skip
# Python takes each for a number; no number is written so.
NO_WHOLE = ["+1", "1.0", "1_000", "٣", "１", " "]
# As bytes that are no UTF-8, or halves of characters, in a URL.
RAW = ["%ff", "%ed%a0%80", "%c0%80", "%00", "%", "%zz", "%e2%82"]


def parameters(client: httpx.Client) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """Path, the parameter, and what the route needs besides."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        if "get" not in methods:
            continue
        known = methods["get"].get("parameters", [])
        needed = {each["name"]: "1" for each in known if each.get("required") and each["in"] == "query"}
        for each in known:
            if each["in"] in ("query", "path"):
                yield path, each, {name: value for name, value in needed.items() if name != each["name"]}


def asked(client: httpx.Client, path: str, name: str, place: str, value: str, others: dict[str, str]) -> httpx.Response:
    """`value` is part of a URL already."""
    query = "&".join(f"{key}={text}" for key, text in others.items())
    if place == "path":
        path = path.replace(f"{{{name}}}", value)
    else:
        query = "&".join(filter(None, [query, f"{name}={value}"]))
    for other in ("entity_type", "entity_id", "change_id", "unit_id", "idempotency_key", "event_type"):
        path = path.replace(f"{{{other}}}", "1")
    url = httpx.URL(str(client.base_url).rstrip("/")).copy_with(raw_path=f"{path}?{query}".encode())
    return client.get(url)


def test_only_decimal_digits_are_a_number(anna: httpx.Client) -> None:
    found = [each for each in parameters(anna) if "'integer'" in str(each[1]["schema"])]
    assert len(found) > 10
    taken = []
    for path, parameter, others in found:
        for value in NO_WHOLE:
            answer = asked(anna, path, parameter["name"], parameter["in"], quote(value, safe=""), others)
            if answer.status_code != 422:
                taken.append((path, parameter["name"], value, answer.status_code))
    assert not taken


@pytest.mark.usefixtures("one_plan")
@pytest.mark.timeout(600)
def test_no_value_of_any_parameter_is_answered_with_an_error_of_the_server(anna: httpx.Client) -> None:
    found = list(parameters(anna))
    assert len(found) > 40
    failed = []
    for path, parameter, others in found:
        for value in [*(quote(each, safe="") for each in ODD), *RAW]:
            answer = asked(anna, path, parameter["name"], parameter["in"], value, others)
            if answer.status_code >= 500:
                failed.append((path, parameter["name"], value[:60], answer.status_code, answer.text[:100]))
    assert not failed
