"""What is read of one host for the first line of its page."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.read.host_condition import read_condition
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb


def test_the_worst_alert_comes_first_however_old_it_is_and_then_the_newest(engine: Engine) -> None:
    raised = [("goes-nowhere", "critical"), ("answers-lost", "critical"), ("forecast", "warning"), ("strays", "info")]
    with engine.begin() as connection:
        for kind, severity in raised:
            raise_alert(connection, HOST, kind, severity, "told")
        found = read_condition(connection, HOST).alerts
    assert [alert.kind for alert in found] == ["answers-lost", "goes-nowhere", "forecast", "strays"]
