"""The keys of a process: those of its settings, or those of a file, as it is at each look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from oldhost_sync.credentials import EncryptionKey, parse_act_keys, parse_encryption_keys
from oldhost_sync.settings import Settings, SettingsError
from oldhost_sync.watched_file import WatchedFile, WatchedList, read_lines

T = TypeVar("T")


def signing_keys(settings: Settings) -> Sequence[str]:
    """Those that sign operators' actions. SettingsError if their file can't be used."""
    return _keys("SYNC_ACT_KEYS", settings.act_keys, settings.act_keys_file, parse_act_keys)


def encryption_keys(settings: Settings) -> Sequence[EncryptionKey]:
    """Those that encrypt what Temporal stores. SettingsError if their file can't be used."""
    return _keys("SYNC_TEMPORAL_KEYS", settings.temporal_keys, settings.temporal_keys_file, parse_encryption_keys)


def _keys(setting: str, given: tuple[T, ...], file: Path | None, parse: Callable[[str], tuple[T, ...]]) -> Sequence[T]:
    if file is None:
        return given
    if given:
        raise SettingsError(f"{setting} and {setting}_FILE are both set: set one of them")
    try:
        return WatchedList(WatchedFile(file, lambda each: parse(",".join(read_lines(each))), f"{setting}_FILE"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{setting}_FILE: {error}") from None
