"""Settings: checked once, told clearly, secrets never shown."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.contract import Peer
from oldhost_sync.drivers.http.requests import OLDHOST
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.settings import ApiToken, Role, Settings, SettingsError, bind_address, load_settings, parse_api_tokens

DIGEST = "ab" * 32


def test_everything_has_a_default_but_the_addresses() -> None:
    settings = load_settings()
    assert (settings.database_url, settings.oldhost_url) == (None, None)
    assert (settings.host, settings.debounce_seconds, settings.max_wait_seconds) == ("oldhost", 120, 600)
    assert (settings.txn_per_lww, settings.ban_seconds, settings.api_bind) == (3, 900, "127.0.0.1:8000")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_DEBOUNCE_SECONDS", "2.4")
    monkeypatch.setenv("SYNC_API_TOKENS", f"shop:app:{DIGEST}, ana:ops:{DIGEST.upper()}")
    settings = load_settings()
    assert settings.debounce_seconds == 2.4
    assert settings.api_tokens == (ApiToken("shop", Role.APP, DIGEST), ApiToken("ana", Role.OPS, DIGEST))


def test_a_settle_time_that_covers_less_than_what_may_still_happen_is_refused() -> None:
    assert load_settings(settle_seconds=8, request_timeout_seconds=5).settle_seconds == 8
    with pytest.raises(SettingsError, match=r"SYNC_SETTLE_SECONDS is 7\.9, and must be 8 or more"):
        load_settings(settle_seconds=7.9, request_timeout_seconds=5)


def test_a_cap_below_the_debounce_is_refused() -> None:
    with pytest.raises(SettingsError, match="SYNC_MAX_WAIT_SECONDS is 60, less than SYNC_DEBOUNCE_SECONDS 120"):
        load_settings(max_wait_seconds=60)


def test_the_ledger_is_kept_for_a_year_by_default_and_never_for_less_than_the_changes() -> None:
    assert load_settings().retention_ledger_days >= 365
    with pytest.raises(SettingsError, match="SYNC_RETENTION_LEDGER_DAYS is 30, less than SYNC_RETENTION_CHANGES_DAYS"):
        load_settings(retention_ledger_days=30)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shop", r"token 1 must be name:role:sha256hex; it has 1 part"),
        (f"shop:app:{DIGEST},bad:boss:{DIGEST}", r"token 2 \(bad\) has the role 'boss'; roles are app, viewer, ops"),
        ("shop:app:secret", r"token 1 \(shop\) needs the token's SHA-256 as 64 hexadecimal digits"),
        (f"sh op:app:{DIGEST}", r"token 1 needs a name of letters"),
        (f"shop:app@nor th:{DIGEST}", r"token 1 \(shop\) has an invalid host name: give hosts as app@host\+host"),
        (f"shop:app@:{DIGEST}", r"token 1 \(shop\) has an invalid host name"),
        (f"shop:app:{DIGEST},shop:ops:{DIGEST}", r"tokens 1 and 2 have the same name 'shop'"),
    ],
)
def test_a_wrong_token_is_told_by_its_place(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_api_tokens(text)


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("shop:app:{}:2027-01-31", "shop:app:{}", True),
        ("shop:app:{}", "shop:app:{}:2027-01-31", True),
        ("shop:app:{}:2027-01-31", "shop:app:{}:2027-02-28", True),
        ("shop:app:{}:2027-01-31", "shop:ops:{}", False),
    ],
)
def test_a_token_and_its_successor_may_have_one_name(first: str, second: str, fits: bool) -> None:
    text = f"{first.format(DIGEST)},{second.format(DIGEST[::-1])}"
    if fits:
        assert len(parse_api_tokens(text)) == 2
    else:
        with pytest.raises(ValueError, match="tokens 1 and 2 have the same name"):
            parse_api_tokens(text)


def test_a_token_s_last_day_survives_the_way_through_the_environment() -> None:
    given = f"shop:app:{DIGEST}:2027-01-31"
    (token,) = parse_api_tokens(given)
    assert token.last_day is not None
    assert token.entry == given
    with pytest.raises(ValueError, match="its last day must be a day, such as 2026-11-01"):
        parse_api_tokens(f"shop:app:{DIGEST}:tomorrow")


def test_keys_that_sign_acts_are_long() -> None:
    assert load_settings(act_keys=f"{'a' * 32}, {'b' * 32}").act_keys == ("a" * 32, "b" * 32)
    with pytest.raises(SettingsError, match="key 2 must have 32 characters or more") as told:
        load_settings(act_keys=f"{'a' * 32},hunter2")
    assert "hunter2" not in str(told.value)


def test_all_that_is_wrong_is_told_at_once_and_without_the_values() -> None:
    with pytest.raises(SettingsError) as told:
        load_settings(database_url="postgres://me:hunter2@db/x", txn_per_lww=0, api_tokens="shop:app:hunter2")
    message = str(told.value)
    assert "SYNC_DATABASE_URL: give it as mysql+pymysql://" in message
    assert "SYNC_TXN_PER_LWW" in message
    assert "SYNC_API_TOKENS: token 1 (shop)" in message
    assert "hunter2" not in message


def test_secrets_are_not_shown() -> None:
    settings = Settings(
        database_url="mysql+pymysql://me:hunter2@db/x",
        api_tokens=(ApiToken("shop", Role.APP, DIGEST),),
        alert_webhook_url="https://hooks.example/hunter2",
    )
    assert "hunter2" not in repr(settings)
    assert DIGEST not in str(settings)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match="SYNC_DATABASE_URL is not set"):
        load_settings().need_database_url()
    with pytest.raises(SettingsError, match="SYNC_OLDHOST_URL is not set"):
        load_settings().urls_by_host()


def test_settings_reach_other_processes_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(
        database_url="mysql+pymysql://me:pass@db/x",
        ban_seconds=18.5,
        api_tokens=(ApiToken("shop", Role.APP, DIGEST),),
        oldhost_urls={"north": "http://b:2"},
    )
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:0", ("::1", 0)), ("host.name:1", ("host.name", 1))],
)
def test_a_bind_is_address_and_port(text: str, address: tuple[str, int]) -> None:
    assert bind_address(text) == address


@pytest.mark.parametrize("text", ["8000", ":8000", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:²"])
def test_what_is_no_bind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="address:port"):
        bind_address(text)


def test_more_hosts_are_served_beside_the_own_one() -> None:
    settings = load_settings(oldhost_url="http://a:1", oldhost_urls="north=http://b:2, south=http://c:3")
    assert settings.urls_by_host() == {"oldhost": "http://a:1", "north": "http://b:2", "south": "http://c:3"}
    assert settings.hosts() == ("oldhost", "north", "south")


def test_further_hosts_without_an_address_of_the_own_one_are_refused() -> None:
    settings = load_settings(oldhost_urls="north=http://b:2")
    for served in (settings.hosts, settings.urls_by_host):
        with pytest.raises(SettingsError, match=r"SYNC_OLDHOST_URL is not set, .* SYNC_HOST \(oldhost\)"):
            served()


def test_the_own_host_s_address_may_stand_among_the_others() -> None:
    settings = load_settings(host="north", oldhost_urls="south=http://c:3,north=http://b:2")
    assert settings.hosts() == ("north", "south")
    assert settings.urls_by_host() == {"north": "http://b:2", "south": "http://c:3"}


@pytest.mark.parametrize("text", ["north", "north=b:2", "=http://b:2", "north=http://b:2,north=http://c:3"])
def test_a_host_without_name_or_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="SYNC_OLDHOST_URLS: host"):
        load_settings(oldhost_urls=text)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://oldhost:1",
        "https://oldhost:1/path?query",
        "https://oldhost:1/a/../b",
        "https://oldhost:1/a b",
        "http://oldhost:x",
        "http://oldhost:0",
        "http://[::1",
        "b:2",
        "http://user:secret@oldhost:1",
        "http://user@oldhost:1",
        "http://müller.example:1",
        "http://oldhost。example:1",
        "http://old..host:1",
        "http://[fe80::1%eth0]:1",
        f"http://{64 * 'a'}:1",
    ],
)
def test_an_address_that_the_protocol_does_not_know_is_refused_under_its_setting_s_name(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^SYNC_OLDHOST_URL: give it as http://address:port"):
        load_settings(oldhost_url=url)
    with pytest.raises(SettingsError, match=r"^SYNC_OLDHOST_URLS: host 'north': give it as http://address:port"):
        load_settings(oldhost_urls=f"south=http://a:1,north={url}")


@pytest.mark.parametrize(
    ("url", "do"),
    [("http://user:secret@oldhost:1", "SYNC_OLDHOST_AUTH_FILE"), ("http://müller.example:1", "xn--")],
)
def test_an_address_whose_parts_would_be_dropped_or_guessed_says_what_to_write_instead(url: str, do: str) -> None:
    with pytest.raises(SettingsError, match=do) as refused:
        load_settings(oldhost_url=url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "name", "authority"),
    [
        ("http://xn--mller-kva.example:8100", "xn--mller-kva.example", "xn--mller-kva.example:8100"),
        ("http://old_host.example.:8100/", "old_host.example.", "old_host.example.:8100"),
        ("http://[::1]:8100", "::1", "[::1]:8100"),
    ],
)
def test_the_host_header_is_the_urls(url: str, name: str, authority: str) -> None:
    address = parse_address(url)
    assert (address.name, address.port, address.authority) == (name, 8100, authority)
    assert f"Host: {authority}\r\n".encode() in OLDHOST.ask_expected(peer=Peer(address.authority))


@pytest.mark.parametrize(
    ("url", "port", "tls", "base"),
    [
        ("http://oldhost", 80, False, ""),
        ("https://oldhost", 443, True, ""),
        ("https://oldhost:8443/legal/v2/", 8443, True, "/legal/v2"),
    ],
)
def test_an_address_says_its_port_whether_it_is_tls_and_what_comes_before_its_paths(
    url: str, port: int, tls: bool, base: str
) -> None:
    address = parse_address(url)
    assert (address.port, address.tls, address.base) == (port, tls, base)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"oldhost_key_file": "key.pem"}, "SYNC_OLDHOST_KEY_FILE is set without SYNC_OLDHOST_CERT_FILE"),
        ({"oldhost_ca_file": "ca.pem"}, "begin with https://"),
        ({"oldhost_cert_file": "cert.pem"}, "begin with https://"),
    ],
)
def test_a_certificate_that_would_never_be_used_is_refused(files: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        load_settings(oldhost_url="http://oldhost:1", **files)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"oldhost_proxy": "proxy:3128"}, "SYNC_OLDHOST_PROXY: give the proxy as http://address:port"),
        ({"oldhost_proxy": "https://proxy:3128"}, "SYNC_OLDHOST_PROXY: give the proxy as http://address:port"),
        ({"oldhost_proxy": "http://proxy:3128/path"}, "SYNC_OLDHOST_PROXY: give the proxy as http://address:port"),
        ({"oldhost_proxy": "socks5://proxy:1080"}, "SYNC_OLDHOST_PROXY: give the proxy as http://address:port"),
        ({"oldhost_proxy": "http://me:secret@proxy:3128"}, "SYNC_OLDHOST_PROXY: .*own file of credentials"),
        ({"oldhost_proxy_auth_file": "auth"}, "SYNC_OLDHOST_PROXY_AUTH_FILE is set without SYNC_OLDHOST_PROXY"),
    ],
)
def test_a_proxy_that_could_not_be_used_as_it_is_given_is_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        load_settings(oldhost_url="http://oldhost:1", **given)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("setting", ["alert_webhook_url", "temporal_ui_url"])
def test_a_url_that_is_shown_or_posted_to_has_no_password(setting: str) -> None:
    with pytest.raises(SettingsError, match="without user and password") as refused:
        load_settings(**{setting: "https://user:secret@name.example/path"})
    assert "secret" not in str(refused.value)
    load_settings(**{setting: "https://name.example/@path"})


def test_a_token_may_be_for_some_hosts_only() -> None:
    (limited, free) = parse_api_tokens(f"shop:app@north+south:{DIGEST},ana:ops:{DIGEST}")
    assert [limited.is_for(host) for host in ("north", "south", "east")] == [True, True, False]
    assert free.is_for("east")


def test_a_token_is_written_as_it_is_read() -> None:
    text = f"shop:app@north+south:{DIGEST}"
    assert [token.entry for token in parse_api_tokens(text)] == [text]
