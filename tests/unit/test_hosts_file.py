"""The file of several hosts: checked as a whole, each mistake with its line and key, and no value shown."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from datetime import time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.fields.toml_file import MISTAKES_MAX, STATEMENT_LINES_MAX, lines_of
from oldhost_sync.host_settings import HostSettings
from oldhost_sync.hosts_file import HOSTS_MAX
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import parse_proxy
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.policy.rules.quiet_hours import QuietHours
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.relay.host_relay import relay_transactions
from oldhost_sync.relay.writers import TemporalWriters
from oldhost_sync.roles import api, worker
from oldhost_sync.roles.relay import host_relays, quiet_hours_keeper
from oldhost_sync.settings import Settings, SettingsError, load_settings
from oldhost_sync.temporal.client import writer_policies, writer_policy
from oldhost_sync.watched_file import FILE_BYTES_MAX
from tests.architecture.project_files import ROOT

Load = Callable[..., Settings]
NOTHING: Any = None

TWO = """
[hosts.north]
url = "https://north.example:8443/legal"
ca_file = "north/ca.pem"
auth_file = "/etc/north/auth"
debounce_seconds = 5
early_send_seconds = 1.5
request_timeout_seconds = 20
settle_seconds = 30

[hosts.south]
url = "http://south.example:1"
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads settings with a file of this text."""

    def loaded(text: str | bytes, **given: object) -> Settings:
        file = tmp_path / "hosts.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_settings(hosts_file=file, **{"oldhost_url": "http://own.example:1", **given})

    return loaded


@pytest.fixture
def told(load: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """What is told about a wrong file, without its folder."""

    def of(text: str | bytes, **given: object) -> list[str]:
        with pytest.raises(SettingsError) as refused:
            load(text, **given)
        begin, _, rest = str(refused.value).partition(": ")
        assert begin == "SYNC_HOSTS_FILE"
        return rest.replace(f"{tmp_path}/", "").split("; ")

    return of


def test_a_host_has_what_its_table_gives_and_the_deployments_timing_for_the_rest(load: Load, tmp_path: Path) -> None:
    settings = load(TWO, max_wait_seconds=700.0, debounce_seconds=60.0)
    north, south, own = map(settings.of_host, ("north", "south", "oldhost"))
    assert (north.url, north.debounce_seconds, north.max_wait_seconds) == ("https://north.example:8443/legal", 5, 700)
    assert (north.ca_file, north.auth_file) == (tmp_path / "north" / "ca.pem", Path("/etc/north/auth"))
    assert (south.debounce_seconds, south.settle_seconds, south.early_send_seconds) == (60, 10, None)
    assert (own.url, own.debounce_seconds, own.settle_seconds) == ("http://own.example:1", 60, 10)


def test_hosts_of_the_environment_and_of_the_file_are_served_together(load: Load) -> None:
    settings = load(TWO, oldhost_urls="east=http://east.example:1")
    assert settings.hosts() == ("oldhost", "east", "north", "south")
    assert settings.urls_by_host()["south"] == "http://south.example:1"


def test_the_own_host_may_stand_in_the_file(load: Load) -> None:
    settings = load(TWO, host="south", oldhost_url=None)
    assert settings.hosts() == ("south", "north")
    assert settings.urls_by_host()["south"] == "http://south.example:1"


def test_a_command_for_a_host_of_the_file_finds_it_though_the_own_address_is_set(load: Load) -> None:
    """`--host north` is SYNC_HOST=north, beside the SYNC_OLDHOST_URL of another host."""
    assert load(TWO, host="north").of_host("north").debounce_seconds == 5


@pytest.mark.parametrize("names", [{"oldhost_urls": "south=http://a:1"}, {"host": "south"}])
def test_a_name_in_the_environment_and_in_the_file_is_refused(load: Load, names: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"hosts\.toml, line 11: hosts\.south: SYNC_OLDHOST_URLS? has an address"):
        load(TWO, **names).hosts()


def test_only_hosts_with_an_address_are_served(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"SYNC_OLDHOST_URL is not set, .* SYNC_HOST \(oldhost\)"):
        load(TWO, oldhost_url=None).hosts()
    assert load(TWO).of_host("elsewhere").url is None


def test_a_host_has_quiet_hours(load: Load) -> None:
    settings = load(TWO + '[[hosts.south.quiet]]\nfrom = "02:00"\nfor = "40m"\nzone = "Europe/Berlin"\n')
    (hours,) = settings.of_host("south").quiet_hours
    assert hours == QuietHours(time(2), timedelta(minutes=40), ZoneInfo("Europe/Berlin"))
    assert settings.of_host("north").quiet_hours == ()


@pytest.mark.parametrize(
    ("quiet", "why"),
    [
        ('{ from = "02:00", for = "40m" }', "each has from, for and zone"),
        ('{ from = "02:00", for = "40m", zone = "UTC", on = "Monday" }', "each has from, for and zone"),
        ('{ from = "2 am", for = "40m", zone = "UTC" }', "from is a time of day such as 02:00"),
        ('{ from = "02:00", for = "2d", zone = "UTC" }', "for is a duration of up to 12h, such as 40m or 2h"),
        *(
            (f'{{ from = "02:00", for = "40m", zone = "{zone}" }}', "zone is the name of a time zone")
            for zone in ("Europe/Berlim", "../etc/passwd", "", "Europe")
        ),
    ],
)
def test_quiet_hours_that_mean_nothing_are_refused(told: Callable[..., list[str]], quiet: str, why: str) -> None:
    (mistake,) = told(f'[hosts.south]\nurl = "http://s:1"\nquiet = [{quiet}]\n')
    assert mistake.startswith(f"hosts.toml, line 3: hosts.south.quiet: {why}")


def test_every_mistake_is_told_at_once_with_its_line_and_key(told: Callable[..., list[str]]) -> None:
    text = """title = "hosts"
[hosts.north]
url = "https://n:1"  # a comment
debounce_second = 4
ban_seconds = "4"
sweep_seconds = true
probe_seconds = 0

[hosts.south]
txn_per_lww = 2.5
ca_file = 7
cert_file = ""
settle_seconds = inf
"""
    begins = [
        "hosts.toml, line 1: title: this is unknown",
        "hosts.toml, line 4: hosts.north.debounce_second: there is no such setting, is it debounce_seconds?",
        "hosts.toml, line 5: hosts.north.ban_seconds: it should be a valid number",
        "hosts.toml, line 6: hosts.north.sweep_seconds: it should be a valid number",
        "hosts.toml, line 7: hosts.north.probe_seconds: it should be greater than 0",
        "hosts.toml, line 9: hosts.south: url is missing",
        "hosts.toml, line 10: hosts.south.txn_per_lww: it should be a valid integer",
        "hosts.toml, line 11: hosts.south.ca_file: give it as the name of a file",
        "hosts.toml, line 12: hosts.south.cert_file: give it as the name of a file",
        "hosts.toml, line 13: hosts.south.settle_seconds: it should be a finite number",
    ]
    found = told(text)
    assert [each[: len(begin)] for each, begin in zip(found, begins, strict=True)] == begins


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("settle_seconds = 7.9", "hosts.n.settle_seconds: settle_seconds is 7.9, and must be 8 or more"),
        ("request_timeout_seconds = 9", "hosts.n.request_timeout_seconds: SYNC_SETTLE_SECONDS is 10, and must be 12"),
        ("max_wait_seconds = 60", "hosts.n.max_wait_seconds: max_wait_seconds is 60, less than SYNC_DEBOUNCE_SECONDS"),
        (
            "debounce_seconds = 601",
            "hosts.n.debounce_seconds: SYNC_MAX_WAIT_SECONDS is 600, less than",
        ),
        ("consistency_hours = 0.1", "hosts.n.consistency_hours: SYNC_MAX_WAIT_SECONDS is 600, more than consistency_"),
        ('key_file = "k"', "hosts.n.key_file: key_file is set without cert_file"),
        ('cert_file = "c"', "hosts.n.cert_file: cert_file needs url to begin with https:// or tls://"),
        ('driver = "telex"', "hosts.n.driver: there is no driver telex: there are frame, http"),
        ("options = {speed = 1}", "hosts.n.options.speed: there is no such option"),
        ('ca_file = "c"', "hosts.n.ca_file: ca_file needs url to begin with https:// or tls://"),
    ],
)
def test_what_does_not_fit_together_is_told_at_the_line_in_the_file(
    told: Callable[..., list[str]], lines: str, why: str
) -> None:
    (found,) = told(f'[hosts.n]\nurl = "http://n:1"\n{lines}\n')
    assert found.startswith(f"hosts.toml, line 3: {why}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[hosts.n\n", "hosts.toml, line 1: Expected ']' at the end of a table declaration"),
        ('[hosts.n]\nurl = "http://n:1"\n[hosts.n]\n', "hosts.toml, line 3: Cannot declare ('hosts', 'n') twice"),
        ('[hosts.n]\nurl = "a"\nurl = "b"\n', "hosts.toml, line 3: Cannot overwrite a value"),
        ("", "hosts.toml, line 1: hosts: give each host as a table"),
        ("hosts = 1", "hosts.toml, line 1: hosts: give each host as a table"),
        ("\n[[hosts.n]]", "hosts.toml, line 2: hosts.n: give each host as a table"),
        ("[hosts]\nn = 1", "hosts.toml, line 2: hosts.n: give each host as a table"),
        ('[hosts."n m\\n"]', "hosts.toml, line 1: hosts.'n m\\n': a host's name has letters"),
        (b"[hosts.n]\nurl = '\xff'", "hosts.toml, line 2: it is not UTF-8"),
        (f"a = {'[' * 5000}", "hosts.toml is nested too deeply"),
        (f"a = {'1' * 5000}", "hosts.toml: Exceeds the limit"),
        ("#" * (FILE_BYTES_MAX + 1), f"hosts.toml is larger than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_what_is_no_file_of_hosts_is_refused(told: Callable[..., list[str]], text: str | bytes, why: str) -> None:
    assert told(text)[0].startswith(why)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"SYNC_HOSTS_FILE: .*none\.toml can't be read: No such file"):
        load_settings(hosts_file=tmp_path / "none.toml")


def test_hosts_and_mistakes_have_a_limit(told: Callable[..., list[str]], load: Load) -> None:
    many = [f'[hosts.n{number}]\nurl = "http://n:1"\n' for number in range(HOSTS_MAX + 1)]
    assert len(load("".join(many[1:])).hosts()) == HOSTS_MAX + 1
    assert told("".join(many)) == [
        f"hosts.toml, line 1: hosts: give each host as a table, [hosts.NAME], from 1 to {HOSTS_MAX}"
    ]
    assert told("x = 1\n".join(many[: MISTAKES_MAX + 4]))[MISTAKES_MAX:] == ["and 3 more"]


def test_no_address_and_no_value_is_shown(told: Callable[..., list[str]], load: Load) -> None:
    wrong = 'ban_seconds = "hunter2"\nca_file = ["hunter2"]\nproxy = "http://me:hunter2@p:1"\n'
    found = told(f'[hosts.n]\nurl = "https://me:hunter2@n:1"\n{wrong}')
    assert len(found) == 4
    assert "hunter2" not in "".join(found)
    assert "without user and password: SYNC_OLDHOST_AUTH_FILE, or auth_file, has them" in found[0]
    settings = load('[hosts.n]\nurl = "https://n:1/hunter2"\n')
    assert "hunter2" not in f"{settings!r}{settings.of_host('n')!r}"


def test_the_hosts_of_the_file_reach_other_processes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(TWO)
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    assert load_settings().of_host("north") == settings.of_host("north")


def test_a_changed_copy_of_the_settings_keeps_the_hosts_of_the_file(load: Load) -> None:
    copy = load(TWO).model_copy(update={"ban_seconds": 7.0})
    assert (copy.of_host("south").ban_seconds, copy.of_host("north").debounce_seconds) == (7, 5)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1\n\n# b = 2\nb = 3", {("a",): 1, ("b",): 4}),
        ('a = """\nb = 1\n[c]\n"""\nb = 2', {("a",): 1, ("b",): 5}),
        ("a = [\n  1,\n]\nb = 2", {("a",): 1, ("b",): 4}),
        ("[x]\r\na.b = 1\r\n[ x . 'y z' ]\r\nc = 1", {("x", "a", "b"): 2, ("x", "y z", "c"): 4}),
        ("[x]\ny = {a = 1, b = {c = 2}}\n", {("x", "y", "a"): 2, ("x", "y", "b", "c"): 2}),
        ("[[x]]\na = 1 # [y]\n'b#' = '='", {("x",): 1, ("x", "1", "a"): 2, ("x", "1", "b#"): 3}),
        ("[[x.y]]\na = 1\n[[x.y]]\na = 2", {("x", "y"): 1, ("x", "y", "1", "a"): 2, ("x", "y", "2", "a"): 4}),
    ],
)
def test_a_keys_line_is_found_however_it_is_written(text: str, lines: dict[tuple[str, ...], int]) -> None:
    tomllib.loads(text)
    found = lines_of(text)
    assert lines.items() <= found.items()


def test_the_search_for_lines_ends_at_a_statement_that_is_too_long() -> None:
    long = "\n" * STATEMENT_LINES_MAX
    assert lines_of(f"a = 1\nb = [{long}]\nc = 1") == {("a",): 1}


PLAIN = TWO.replace("ca_file", "# ca_file").replace("auth_file", "# auth_file")


def test_each_hosts_writer_and_session_have_its_own_timing(load: Load) -> None:
    settings = load(PLAIN)
    policies, sessions = writer_policies(settings), worker.session_activities(settings, NOTHING, NOTHING)
    assert (policies("north").debounce_ms, policies("north").early_send_ms) == (5_000, 1_500)
    assert (policies("south").debounce_ms, policies("oldhost").debounce_ms) == (120_000, 120_000)
    assert (sessions.limits("north").settle_seconds, sessions.limits("north").request_timeout_seconds) == (30, 20)
    assert (sessions.limits("south").settle_seconds, sessions.limits("oldhost").settle_seconds) == (10, 10)


def test_what_people_change_for_a_host_is_called_by_its_name_there(load: Load) -> None:
    settings = load(TWO, oldhost_urls="east=http://east.example:1")
    fields = ("url", "ca_file", "settle_seconds", "ban_seconds")
    called = {host: [settings.called(host, field) for field in fields] for host in settings.hosts()}
    of_deployment = ["SYNC_SETTLE_SECONDS", "SYNC_BAN_SECONDS"]
    assert called == {
        "oldhost": ["SYNC_OLDHOST_URL", "SYNC_OLDHOST_CA_FILE", *of_deployment],
        "east": ["SYNC_OLDHOST_URLS", "hosts.east.ca_file", *of_deployment],
        "north": ["hosts.north.url", "hosts.north.ca_file", "hosts.north.settle_seconds", "SYNC_BAN_SECONDS"],
        "south": ["hosts.south.url", "hosts.south.ca_file", *of_deployment],
    }
    home = api.build(load(PLAIN, database_url="mysql+pymysql://nobody@127.0.0.1:1/nothing"))
    assert home.called("north", "url") == "hosts.north.url"


def test_each_host_has_its_own_promises(load: Load) -> None:
    settings = load(PLAIN + "emergency_seconds = 10\nconsistency_hours = 1.5", emergency_seconds=20.0)
    policies, home = writer_policies(settings), settings.of_host("oldhost").promises
    assert policies("south").promises == settings.of_host("south").promises == Promises(5_400_000, 10_000)
    assert policies("north").promises == home == Promises(14_400_000, 20_000)
    assert (settings.of_host("south").promises.consistency, home.emergency) == ("1.5 h", "20 s")


def test_a_worker_leaves_when_the_slowest_host_has_drained(load: Load) -> None:
    slowest = load(PLAIN).of_host("north")
    assert worker.drained_within_seconds(load(PLAIN)) == worker.session_limits(slowest).drained_within_seconds
    assert worker.leaves_within_seconds(load(PLAIN)) > worker.leaves_within_seconds(
        load_settings(oldhost_url="http://a:1")
    )


def test_the_relay_signals_each_host_at_its_own_pace(load: Load) -> None:
    settings = load(PLAIN)
    transactions, writers = relay_transactions(NOTHING, NOTHING), TemporalWriters(writer_policies(settings))
    relays = host_relays(settings, transactions, writers, NOTHING, "me", None, Conditions())
    pace = relays["south"].pace
    assert relays["north"].pace == pace.within(5) != pace


def test_the_api_plans_with_each_hosts_own_policy(load: Load) -> None:
    settings = load(PLAIN, database_url="mysql+pymysql://nobody@127.0.0.1:1/nothing")
    home = api.build(settings)
    assert home.policies("north").debounce_ms == 5_000
    assert home.policy == writer_policy(settings.of_host("oldhost"))
    assert api.of_other(home, "north").planner.policy.debounce_ms == 5_000


def test_the_relay_and_the_api_know_each_hosts_quiet_hours(load: Load) -> None:
    text = PLAIN + '[[hosts.south.quiet]]\nfrom = "02:00"\nfor = "40m"\nzone = "UTC"\n'
    settings = load(text, database_url="mysql+pymysql://nobody@127.0.0.1:1/nothing")
    hours = settings.of_host("south").quiet_hours
    home = api.build(settings)
    assert [home.quiet_hours(host) for host in settings.hosts()] == [(), (), hours]
    assert api.of_other(home, "south").quiet_hours("south") == hours
    writers = TemporalWriters(writer_policies(settings))
    keeper = quiet_hours_keeper(settings, NOTHING, dict.fromkeys(settings.hosts(), NOTHING), writers)
    assert keeper.hours == {"south": hours}


def test_files_that_can_not_be_used_are_told_with_their_host(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"hosts\.toml, line 2: hosts\.north: the CA file .*north/ca\.pem"):
        worker.access(load(TWO))


def test_each_host_has_its_own_files(load: Load, tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("bearer token")
    access = worker.access(load(PLAIN + 'auth_file = "auth"'))
    assert access("south") == Access(auth=tmp_path / "auth")
    assert access("north") == access("oldhost") == access("elsewhere") == Access()
    access = worker.access(load(PLAIN + 'proxy = "http://proxy.example:3128"\nproxy_auth_file = "auth"'))
    assert access("south") == Access(proxy=parse_proxy("http://proxy.example:3128"), proxy_auth=tmp_path / "auth")
    assert access("north") == access("oldhost") == access("elsewhere") == Access()


@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_credentials_that_travel_unencrypted_are_warned_of(
    load: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    (tmp_path / "auth").write_text("bearer token")
    driver = "frame" if scheme == "tcp" else "http"
    worker.access(load(f'[hosts.till]\nurl = "{scheme}://till.example:4100"\ndriver = "{driver}"\nauth_file = "auth"'))
    assert f"the address of host till is {scheme}://, so our credentials for it travel unencrypted" in caplog.text


MAPPING = '# rooms\nname = "{name}"\n[rules."*"]\npreset = "oldhost"'


def test_a_host_has_its_own_mapping_or_the_deployments(load: Load, tmp_path: Path) -> None:
    for name in ("rooms", "desk"):
        (tmp_path / f"{name}.toml").write_text(MAPPING.format(name=name))
    settings = load(PLAIN + 'mapping_file = "desk.toml"', mapping_file=tmp_path / "rooms.toml")
    names = {host: mapping.name for host, mapping in settings.mappings().items()}
    assert names == {"oldhost": "rooms", "north": "rooms", "south": "desk"}
    assert load(PLAIN + 'mapping_file = "desk.toml"').mappings().keys() == {"south"}


def test_mappings_are_read_before_the_own_host_has_an_address(load: Load, tmp_path: Path) -> None:
    """`up` reads them first, and may start an OldHost later."""
    (tmp_path / "desk.toml").write_text(MAPPING.format(name="desk"))
    assert load(PLAIN + 'mapping_file = "desk.toml"', oldhost_url=None).mappings().keys() == {"south"}


def test_all_that_is_wrong_with_mappings_is_told_once_and_who_names_the_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rooms.toml").write_text(MAPPING.format(name="oldhost"))
    text = TWO.replace("ca_file", 'mapping_file = "none.toml" #') + 'mapping_file = "rooms.toml"'
    with pytest.raises(SettingsError) as refused:
        load(text, mapping_file=tmp_path / "rooms.toml", oldhost_urls="east=http://east:1").mappings()
    own, norths = str(refused.value).replace(f"{tmp_path}/", "").split("; ")
    assert own == "SYNC_MAPPING_FILE: rooms.toml, line 2: name: 'oldhost' is the preset's name"
    why = "none.toml can't be read: No such file or directory"
    assert norths == f"SYNC_HOSTS_FILE: hosts.toml, line 4: hosts.north.mapping_file: {why}"


SECTION = (ROOT / "docs" / "deployment.md").read_text().partition("## Several hosts\n")[2].partition("\n## ")[0]


def test_the_example_of_the_deployments_page_is_right(load: Load) -> None:
    settings = load(SECTION.partition("```toml\n")[2].partition("```")[0])
    assert (settings.of_host("north").debounce_seconds, settings.of_host("south").settle_seconds) == (30, 30)


def test_the_deployments_page_lists_what_a_host_may_have() -> None:
    assert [name for name in HostSettings.model_fields if f"`{name}`" not in SECTION] == []


UNITS = """[hosts.units]
url = "https://units.example"
sign_key_file = "sign.key"

[hosts.units.options]
number = { in = "path" }
sign = { over = ["path", "body"], header = "X-Sign" }

[[hosts.units.options.answers]]
is = "applied"
status = 200
number = "/seq"
"""


def test_a_host_may_have_an_api_of_its_own(load: Load, tmp_path: Path) -> None:
    (tmp_path / "sign.key").write_text("secret\n")
    settings = load(UNITS)
    assert settings.of_host("units").made_driver().capabilities == Capabilities()
    assert worker.access(settings)("units").signing() == b"secret"
    (tmp_path / "sign.key").write_text("")
    with pytest.raises(SettingsError, match=r"hosts.units: the key in .*sign\.key is invalid: one line"):
        worker.access(settings)


def test_mistakes_in_a_hosts_api_are_told_with_their_lines(told: Callable[..., list[str]]) -> None:
    wrong = UNITS.replace("status = 200", "status = 404").replace('in = "path"', 'in = "cookie"')
    second = '\n[[hosts.units.options.answers]]\nis = "bussy"\nstatus = 503\n'
    found = told(wrong + second)
    assert [one.partition(": ")[0] for one in found] == [
        "hosts.toml, line 6",
        "hosts.toml, line 11",
        "hosts.toml, line 15",
    ]
    assert "hosts.units.options.answers.2.is: must be one of applied" in found[2]


@pytest.mark.parametrize(
    "without", ['sign_key_file = "sign.key"\n', 'sign = { over = ["path", "body"], header = "X-Sign" }\n']
)
def test_what_signs_and_how_are_given_together(told: Callable[..., list[str]], without: str) -> None:
    (found,) = told(UNITS.replace(without, ""))
    assert "options.sign and sign_key_file are given together only" in found


def test_a_mapping_with_paths_is_for_http_only(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rooms.toml").write_text('name = "rooms"\n[rules."*"]\npath = "/x"\npreset = "oldhost"\n')
    frame = '[hosts.n]\nurl = "tcp://n:1"\ndriver = "frame"\nmapping_file = "rooms.toml"\n'
    with pytest.raises(SettingsError, match=r"hosts\.n\.mapping_file: it has paths, and driver frame has no place"):
        load(frame).mappings()
