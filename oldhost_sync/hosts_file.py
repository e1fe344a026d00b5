"""The file of SYNC_HOSTS_FILE: a TOML table for each host, `[hosts.north]`, with the fields of `HostSettings`.

It is read once, at the start, and all mistakes are told at once, each with its line and key, and without its value.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from oldhost_sync.fields.toml_lines import Key, line_of, lines_of
from oldhost_sync.host_settings import FILES, TIMING, HostSettings
from oldhost_sync.policy.limits import NAME_PATTERN
from oldhost_sync.watched_file import FILE_BYTES_MAX

# Twice as many as were measured on one machine.
HOSTS_MAX = 200
# One screen of them; the others are counted.
MISTAKES_MAX = 20

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_TABLES = "give each host as a table, [hosts.NAME]"


class HostInFile(NamedTuple):
    """The line of the host's table, and what is given there."""

    line: int
    values: dict[str, Any]


def read_hosts(file: Path, deployment: Mapping[str, Any], taken: Collection[str]) -> dict[str, HostInFile]:
    """The hosts by name. `deployment`: the timing for what a host leaves out; `taken`: hosts of SYNC_OLDHOST_URLS.
    ValueError tells all that is wrong.
    """
    text = _text_of(file)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{file} is nested too deeply") from None
    except ValueError as error:
        place = _PLACE.fullmatch(str(error))
        raise ValueError(f"{file}, line {place[2]}: {place[1]}" if place else f"{file}: {error}") from None
    lines = lines_of(text)
    found = [(line_of(lines, key), key, why) for key, why in _mistakes(file, document, deployment, taken)]
    if found:
        raise ValueError(_told(file, sorted(found)))
    hosts: Mapping[str, dict[str, Any]] = document["hosts"]
    return {name: HostInFile(line_of(lines, ("hosts", name)), _values(file, given)) for name, given in hosts.items()}


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            read = opened.read(FILE_BYTES_MAX + 1)
        if len(read) <= FILE_BYTES_MAX:
            return read.decode()
    except OSError as error:
        raise ValueError(f"{file} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}, line {read[: error.start].count(10) + 1}: it is not UTF-8") from None
    raise ValueError(f"{file} is larger than {FILE_BYTES_MAX} bytes")


def _mistakes(
    file: Path, document: Mapping[str, Any], deployment: Mapping[str, Any], taken: Collection[str]
) -> Iterator[tuple[Key, str]]:
    """What is wrong, with its key."""
    for key in document:
        if key != "hosts":
            yield (key,), f"this is unknown: {_TABLES}"
    hosts = document.get("hosts", {})
    if not isinstance(hosts, dict) or not 1 <= len(hosts) <= HOSTS_MAX:
        yield ("hosts",), f"{_TABLES}, from 1 to {HOSTS_MAX}"
        return
    for name, given in hosts.items():
        if not re.fullmatch(NAME_PATTERN, name):
            yield ("hosts", name), "a host's name has letters, digits, '.', '_' and '-', and 64 at most"
        elif not isinstance(given, dict):
            yield ("hosts", name), _TABLES
        else:
            if name in taken:
                yield ("hosts", name), "SYNC_OLDHOST_URLS has an address for it, too"
            for inner, why in _mistakes_of_host(given, {**deployment, **_values(file, given)}):
                yield ("hosts", name, *inner), why


def _mistakes_of_host(given: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """`values`: `given`, and the deployment's."""
    if "url" not in given:
        yield (), "url is missing"
    try:
        host = HostSettings.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            key = str(detail["loc"][0])
            yield (key,), _why(key, detail["type"], detail["msg"])
        return
    of_deployment = TIMING - given.keys()
    for keys, why in host.contradictions(lambda key: f"SYNC_{key.upper()}" if key in of_deployment else key):
        yield tuple(key for key in keys if key in given)[:1], why


def _why(key: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        meant = difflib.get_close_matches(key, HostSettings.model_fields, 1)
        return f"there is no such setting{f', is it {meant[0]}?' if meant else ''}"
    if key in FILES:
        return "give it as the name of a file"
    return message.removeprefix("Value error, ").replace("Input should be", "it should be")


def _values(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """As `HostSettings` takes them. Files are relative to the folder of this one."""
    return {
        key: file.parent / value if key in FILES and isinstance(value, str) and value else value
        for key, value in given.items()
    }


def _told(file: Path, mistakes: Sequence[tuple[int, Key, str]]) -> str:
    told = [f"{file}, line {line}: {_shown(key)}: {why}" for line, key, why in mistakes[:MISTAKES_MAX]]
    more = len(mistakes) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def _shown(key: Key) -> str:
    return ".".join(part if _BARE_KEY.fullmatch(part) else ascii(part[:64]) for part in key)
