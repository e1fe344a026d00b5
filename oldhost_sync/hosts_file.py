"""The file of SYNC_HOSTS_FILE: a TOML table for each host, `[hosts.north]`, with the fields of `HostSettings`.

It is read once, at the start, and all mistakes are told at once, each with its line and key, and without its value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from oldhost_sync.fields.toml_file import Mistake, TomlFile, read_toml
from oldhost_sync.host_settings import PATHS, SHARED, HostSettings
from oldhost_sync.policy.limits import NAME_PATTERN
from oldhost_sync.watched_file import FILE_BYTES_MAX

# Twice as many as were measured on one machine.
HOSTS_MAX = 200
_TABLES = "give each host as a table, [hosts.NAME]"


class HostInFile(NamedTuple):
    """A host's table, and the values that it gives."""

    file: TomlFile
    name: str
    values: dict[str, Any]

    def at(self, *key: str) -> str:
        """Where the table, or a key of it, stands."""
        return self.file.at(("hosts", self.name, *key))


def read_hosts(path: Path, deployment: Mapping[str, Any], taken: Collection[str]) -> dict[str, HostInFile]:
    """The hosts by name. `deployment`: what a host has that leaves it out; `taken`: hosts of SYNC_OLDHOST_URLS.
    ValueError tells all that is wrong.
    """
    file = read_toml(path, FILE_BYTES_MAX)
    file.refuse(_mistakes(path, file.content, deployment, taken))
    hosts: Mapping[str, dict[str, Any]] = file.content["hosts"]
    return {name: HostInFile(file, name, _values(path, given)) for name, given in hosts.items()}


def _mistakes(
    file: Path, document: Mapping[str, Any], deployment: Mapping[str, Any], taken: Collection[str]
) -> Iterator[Mistake]:
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


def _mistakes_of_host(given: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Mistake]:
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
    yield from host.mistakes_of_driver()
    of_deployment = SHARED - given.keys()
    for keys, why in host.contradictions(lambda key: f"SYNC_{key.upper()}" if key in of_deployment else key):
        yield tuple(key for key in keys if key in given)[:1], why


def _why(key: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        meant = difflib.get_close_matches(key, HostSettings.model_fields, 1)
        return f"there is no such setting{f', is it {meant[0]}?' if meant else ''}"
    if key in PATHS:
        return "give it as the name of a file"
    return message.removeprefix("Value error, ").replace("Input should be", "it should be")


def _values(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """As `HostSettings` takes them. Files are relative to the folder of this one."""
    return {
        key: file.parent / value if key in PATHS and isinstance(value, str) and value else value
        for key, value in given.items()
    }
