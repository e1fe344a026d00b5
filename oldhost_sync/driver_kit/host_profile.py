"""What was measured, as the hosts file's table of that host, and as options of a simulator that behaves so."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator

from oldhost_sync.driver_kit.host_check import Verdict
from oldhost_sync.driver_kit.measurement import Measured
from oldhost_sync.drivers.capabilities import OLDHOST, Capabilities
from oldhost_sync.host_settings import SEND_WITHIN_SECONDS, SETTLE_MARGIN_SECONDS

# A host is slower on a bad day than while it is measured.
SLOWER = 5.0
LATER = 2.0
REQUEST_TIMEOUT_SECONDS_MIN = 2.0
REQUEST_TIMEOUT_SECONDS_MAX = 120.0
SETTLE_SECONDS_MAX = 600.0


def hosts_table(name: str, url: str, driver: str, claimed: Capabilities, found: Measured) -> str:
    """TOML for the hosts file. Claims that the host does not keep are comments: decide about them."""
    return "\n".join((*_table(name, url, driver, claimed, found), ""))


def _table(name: str, url: str, driver: str, claimed: Capabilities, found: Measured) -> Iterator[str]:
    slowest = max(found.operations_ms, default=0.0) / 1000
    timeout = min(max(REQUEST_TIMEOUT_SECONDS_MIN, math.ceil(SLOWER * slowest)), REQUEST_TIMEOUT_SECONDS_MAX)
    late = max(SETTLE_MARGIN_SECONDS, LATER * max(found.late_seconds, default=0.0))
    settle = min(math.ceil(SEND_WITHIN_SECONDS + timeout + late), SETTLE_SECONDS_MAX)
    yield f"[hosts.{name}]"
    yield f"url = {json.dumps(url)}"
    yield f"driver = {json.dumps(driver)}"
    yield f"request_timeout_seconds = {timeout:g}  # the slowest of {len(found.operations_ms)} took {slowest:.3f} s"
    yield f"settle_seconds = {settle:g}  # applied late after {max(found.late_seconds, default=0.0):.1f} s at most"
    if found.ban_seconds:
        yield f"ban_seconds = {math.ceil(found.ban_seconds)}"
    for finding in found.findings:
        if finding.verdict is Verdict.WRONG:
            yield f"# not as claimed: {finding.subject} ({finding.claim}): {finding.found}"
    for claim, seen in _seen(found).items():
        if seen != str(getattr(claimed, claim)):
            yield f"# {claim} was seen to be {seen}, and {getattr(claimed, claim)} is claimed"


def simulator_options(driver: str, claimed: Capabilities, found: Measured) -> list[str]:
    """Of `oldhost-sync simulator`: what differs from OldHost, as it was seen, or else as it is claimed."""
    median = statistics.median(found.operations_ms or [0.0])
    jitter = min(median, max(found.operations_ms, default=median) - median)
    options = ["--latency-ms", f"{median:.0f}", "--jitter-ms", f"{jitter:.0f}"]
    options += ["--ban-seconds", f"{math.ceil(found.ban_seconds)}"] if found.ban_seconds else []
    options += ["--dialect", "frame"] if driver == "frame" else []
    for claim in ("expected", "outcome", "repeated", "rejection_uses", "modulus", "lowest"):
        value = _seen(found).get(claim, getattr(claimed, claim))
        if value != getattr(OLDHOST, claim):
            options += [f"--{claim.replace('_', '-')}", str(value)]
    options += ["--first-nonce", str(claimed.lowest)] if claimed.lowest else []
    is_gapless = claimed.gapless if found.gapless is None else found.gapless
    return options if is_gapless else [*options, "--takes-gaps"]


def _seen(found: Measured) -> dict[str, str]:
    """By claim, what was seen."""
    values = {"rejection_uses": found.rejection_uses, "repeated": found.repeated, "gapless": found.gapless}
    return {claim: str(value) for claim, value in values.items() if value is not None}
