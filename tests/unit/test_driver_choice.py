"""Which driver speaks to a host."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oldhost_sync import driver_choice
from oldhost_sync.driver_choice import driver_named
from oldhost_sync.drivers.capabilities import Capabilities, Resets
from oldhost_sync.drivers.contract import API, InvalidOptions
from oldhost_sync.drivers.http.driver import HttpDriver
from oldhost_sync.settings import SettingsError, load_settings


def offered(options: Mapping[str, Any]) -> Any:
    """What an installed package offers."""
    claims = {name: value for name, value in options.items() if name in {"resets", "gapless", "modulus"}}
    can = Capabilities(**claims)
    return SimpleNamespace(api=options.get("api", API), schemes=("tcp", "tls"), capabilities=can)


def broken(_: Mapping[str, Any]) -> Any:
    raise AssertionError("is not called")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        metadata.EntryPoint("till", f"{__name__}:offered", driver_choice.GROUP),
        metadata.EntryPoint("broken", "no_such_module:driver", driver_choice.GROUP),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints(points))
    driver_choice._factory.cache_clear()


def test_a_host_without_a_driver_of_its_own_speaks_http() -> None:
    assert isinstance(load_settings(oldhost_url="http://n:1").of_host("oldhost").made_driver(), HttpDriver)


def test_an_installed_package_may_offer_a_driver() -> None:
    assert driver_named("till", {}).schemes == ("tcp", "tls")


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("telex", {}, "there is no driver telex: there are broken, frame, http, till"),
        ("broken", {}, "driver broken can't be loaded: ModuleNotFoundError"),
        ("till", {"resets": Resets.DAY, "gapless": False}, r"begin anew \(resets = day\) and may have gaps"),
        ("till", {"resets": Resets.DAY, "modulus": 96}, r"begin anew \(resets = day\) and wrap"),
        ("till", {"modulus": 7}, r"its numbers wrap \(modulus = 7\) after less than 8"),
        ("till", {"api": 7}, "driver till is made for version 7 of the drivers' contract, and this is 1"),
    ],
)
def test_a_driver_that_can_not_be_used_is_named_with_the_reason(name: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        driver_named(name, options)


def test_an_option_that_a_driver_does_not_take_is_named() -> None:
    with pytest.raises(InvalidOptions, match="speed: there is no such option"):
        driver_named("http", {"speed": 1})


def found(tmp_path: Path, table: str) -> str:
    file = tmp_path / "hosts.toml"
    file.write_text(f"[hosts.n]\n{table}\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(hosts_file=file)
    return str(refused.value)


def test_the_address_must_be_one_that_the_driver_speaks_to(tmp_path: Path) -> None:
    why = "line 2: hosts.n.url: driver http needs an address that begins with http:// or https://"
    assert why in found(tmp_path, 'url = "tcp://n:4000"')


def test_an_address_of_bare_tcp_has_a_port_and_no_path(tmp_path: Path) -> None:
    assert "the port is a number" in found(tmp_path, 'url = "tcp://n"\ndriver = "till"')
    assert "give it without a path" in found(tmp_path, 'url = "tls://n:1/x"\ndriver = "till"')


def test_addresses_in_the_environment_speak_http() -> None:
    with pytest.raises(SettingsError, match="driver http needs an address that begins with http:// or https://"):
        load_settings(oldhost_url="tcp://n:4000")
    with pytest.raises(SettingsError, match="tcp:// needs a driver, which SYNC_HOSTS_FILE names"):
        load_settings(oldhost_urls={"n": "tcp://n:4000"})


def test_what_is_set_for_a_driver_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        '[hosts.n]\nurl = "tcp://n:1"\ndriver = "till"\noptions = {password = "hunter2"}\n'
    )
    settings = load_settings(hosts_file=tmp_path / "hosts.toml")
    assert "hunter2" not in f"{settings!r}{settings.of_host('n')!r}"
