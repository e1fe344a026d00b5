"""What questions, and what operations, show of a real simulated host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_simulator.admin import Controls
from oldhost_simulator.process import config_of, parser
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.driver_kit.host_check import ClaimFinding, Verdict, Way, check_host
from oldhost_sync.driver_kit.host_profile import hosts_table, simulator_options
from oldhost_sync.driver_kit.measurement import Bodies, HostMeasurement, Measured
from oldhost_sync.drivers.capabilities import OLDHOST as OLDHOST_CAN
from oldhost_sync.drivers.capabilities import Expects, RejectionUses, Repeats
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.http.driver import HttpDriver
from oldhost_sync.drivers.mapping import OLDHOST, ChangeContent
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.settings import load_settings
from tests.foreign_host.answer import page
from tests.foreign_host.host import ForeignHost


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(Config(latency_ms=2, ban_seconds=1, first_nonce=501)) as simulator:
        yield simulator


def way_to(url: str, driver: Driver) -> Way:
    connector = Connector(parse_address(url), driver, time.monotonic)
    return Way(lambda: connector.connect(lambda: None), time.monotonic, 0.3)


def body(number: int, status: str = "Clean") -> bytes:
    change = ChangeContent("unit", "u1", "unit_status_changed", {"status": status}, number, f"k{number}")
    return OLDHOST.encode(change).body


def measured(simulator: Simulator, driver: Driver) -> Measured:
    rest = lambda seconds: time.sleep(min(seconds, 0.02))  # noqa: E731
    bodies = Bodies(body, body(0, "Purple"))
    way = way_to(simulator.url, driver)
    return HostMeasurement(driver, way, bodies, rest, lambda _: None, ban_seconds_max=10).run()


def verdicts(findings: list[ClaimFinding]) -> dict[str, Verdict]:
    return {f"{finding.subject} {finding.claim}".strip(): finding.verdict for finding in findings}


def test_a_host_that_keeps_its_claims(simulator: Simulator) -> None:
    before = simulator.control(Controls.stats)["applied"]
    found = check_host(HttpDriver(), way_to(simulator.url, HttpDriver()))
    assert {finding.verdict for finding in found} == {Verdict.HOLDS, Verdict.OPEN}
    assert "four equal readings over two connections" in [finding.found for finding in found]
    assert simulator.control(Controls.stats)["applied"] == before


def test_a_host_that_does_not_serve_us_is_told_in_our_words() -> None:
    with ForeignHost() as host:
        host.refuse_all(page(401, "<p>Vera Secret</p>"))
        found = check_host(HttpDriver(), way_to(host.url, HttpDriver()))
    wrong = {finding.found for finding in found if finding.verdict is Verdict.WRONG}.pop()
    assert wrong.startswith("OldHost, or a proxy before it, refuses our credentials")
    assert "Vera" not in str(found)


def test_measuring_sees_what_the_host_does(simulator: Simulator) -> None:
    found = measured(simulator, HttpDriver())
    assert len(found.operations_ms) == 20
    assert max(found.operations_ms) >= 2
    assert (found.closed_after, found.closed_idle, found.gapless, found.repeated) == (
        None,
        False,
        True,
        Repeats.PUNISHED,
    )
    assert found.ban_seconds is not None
    assert 0.5 < found.ban_seconds < 5
    assert len(found.late_seconds) == 3
    assert Verdict.WRONG not in verdicts(found.findings).values()


def test_a_claim_that_the_host_does_not_keep_is_wrong_and_a_comment_of_its_settings(
    simulator: Simulator, tmp_path: Path
) -> None:
    driver = HttpDriver()
    driver.capabilities = replace(driver.capabilities, repeated=Repeats.LAST_ANSWER, gapless=False)
    found = measured(simulator, driver)
    wrong = [claim for claim, verdict in verdicts(found.findings).items() if verdict is Verdict.WRONG]
    assert wrong == ["a number that is too high is taken", "a number that comes again gets its last answer again"]
    table = hosts_table("test", simulator.url, "http", driver.capabilities, found)
    assert "# repeated was seen to be punished, and last_answer is claimed" in table
    file = tmp_path / "hosts.toml"
    file.write_text(table)
    host = load_settings(hosts_file=file, oldhost_url=None, host="test").of_host("test")
    assert host.settle_seconds >= 1 + host.request_timeout_seconds + 2


def test_a_simulator_like_the_host_has_its_latency_and_its_ban_and_does_what_it_does() -> None:
    found = Measured(operations_ms=[40.0, 50.0, 90.0], ban_seconds=29.5)
    options = ["--latency-ms", "50", "--jitter-ms", "40", "--ban-seconds", "30"]
    assert simulator_options("http", OLDHOST_CAN, found) == options
    found = replace(found, ban_seconds=None, repeated=Repeats.REFUSED, gapless=False)
    options = simulator_options("frame", replace(OLDHOST_CAN, modulus=128, lowest=32), found)
    config_of(parser().parse_args(options))
    told = "--dialect frame --repeated refused --modulus 128 --lowest 32 --first-nonce 32 --takes-gaps"
    assert " ".join(options[4:]) == told


def test_a_host_that_can_not_be_asked_is_not_measured(simulator: Simulator) -> None:
    driver = HttpDriver()
    driver.capabilities = replace(driver.capabilities, expected=Expects.NEVER, rejection_uses=RejectionUses.YES)
    with pytest.raises(Exception, match="can't be asked which number is next"):
        measured(simulator, driver)
