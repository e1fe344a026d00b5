"""docker-compose.yml and the Dockerfile have the form that was meant; no engine is needed to see it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from oldhost_sync.settings import Settings
from oldhost_sync.store.schema_migration import APP_RIGHTS, MIGRATION_RIGHTS
from tests.architecture.project_files import ROOT

ROLES = ("simulator", "migrate", "api", "relay", "worker")
compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
services: dict[str, Any] = compose["services"]


def test_every_part_is_there() -> None:
    assert sorted(services) == sorted(("mariadb", "temporal", *ROLES))


def test_two_workers_run_and_have_time_to_drain() -> None:
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["worker"]["stop_grace_period"] == "30s"


@pytest.mark.parametrize("name", [name for name in services if name != "migrate"])
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    check = services[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


@pytest.mark.parametrize("name", ["api", "relay", "worker"])
def test_a_role_waits_for_schema_and_temporal(name: str) -> None:
    waits = {part: how["condition"] for part, how in services[name]["depends_on"].items()}
    assert waits["migrate"] == "service_completed_successfully"
    assert waits["temporal"] == "service_healthy"


def test_the_migration_waits_for_the_database_and_runs_once() -> None:
    assert services["migrate"]["depends_on"]["mariadb"]["condition"] == "service_healthy"
    assert services["migrate"]["restart"] == "no"


@pytest.mark.parametrize("name", ROLES)
def test_every_role_is_the_same_unprivileged_image(name: str) -> None:
    role = services[name]
    assert (role["image"], role["build"], role["read_only"], role["cap_drop"]) == ("oldhost-sync", ".", True, ["ALL"])
    assert role["command"][0] == name


def test_only_this_machine_can_reach_the_published_ports() -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_migration_alone_may_change_tables() -> None:
    def account(name: str) -> str:
        return re.sub(r"^mysql\+pymysql://(\w+):.*", r"\1", services[name]["environment"]["SYNC_DATABASE_URL"])

    assert account("migrate") == "sync_migration"
    assert {account(name) for name in ("api", "relay", "worker")} == {"sync_app"}
    granted = compose["configs"]["accounts"]["content"]
    assert f"GRANT {APP_RIGHTS} ON `oldhost\\_sync`.* TO 'sync_app'@'%';" in granted
    assert f"GRANT {MIGRATION_RIGHTS} ON `oldhost\\_sync`.* TO 'sync_migration'@'%';" in granted


def test_every_image_that_is_pulled_has_its_exact_version() -> None:
    pulled = [service["image"] for service in services.values() if "build" not in service]
    pulled += re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(pulled) == 4
    assert [image for image in pulled if not re.search(r":(\$\{\w+:-)?\d+\.\d+\.\d+(-\w+)?\}?$", image)] == []


@pytest.mark.parametrize("name", services)
def test_nothing_but_the_database_keeps_a_right_of_root(name: str) -> None:
    if name == "mariadb":  # its image starts as root and becomes mysql
        return
    assert services[name]["cap_drop"] == ["ALL"]
    assert services[name]["security_opt"] == ["no-new-privileges:true"]


def test_every_setting_in_it_exists() -> None:
    known = {f"SYNC_{name.upper()}" for name in Settings.model_fields}
    told = {
        name for service in services.values() for name in service.get("environment", {}) if name.startswith("SYNC_")
    }
    assert told <= known


def test_every_volume_that_is_used_is_declared() -> None:
    used = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert used == set(compose["volumes"])


def test_the_image_runs_as_nobody_in_particular_from_locked_packages() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    last_stage = dockerfile.rsplit("\nFROM ", 1)[1]
    assert re.search(r"^USER 10001$", last_stage, re.MULTILINE)
    assert "--require-hashes -r requirements.txt" in dockerfile
    copied = re.findall(r"^COPY (\w+) \./\1$", dockerfile, re.MULTILINE)
    assert copied == ["activities", "migrations", "oldhost_simulator", "oldhost_sync", "workflows"]


def test_the_example_settings_are_the_settings() -> None:
    example = re.findall(r"^#(SYNC_\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert sorted(example) == sorted(f"SYNC_{name.upper()}" for name in Settings.model_fields)
