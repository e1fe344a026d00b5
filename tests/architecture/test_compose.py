"""docker-compose.yml and the Dockerfile have the form that was meant; no engine is needed to see it.

What is looked at is what Docker Compose itself makes of the files (`docker-compose config`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from oldhost_sync.roles.worker import leaves_within_seconds
from oldhost_sync.settings import Settings, load_settings
from oldhost_sync.stack.machine import need_program
from oldhost_sync.store.access import APP_RIGHTS, MIGRATION_RIGHTS
from tests.architecture import composes
from tests.architecture.project_files import ROOT

ROLES = ("simulator", "migrate", "api", "relay", "worker")
compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
services: dict[str, Any] = compose["services"]

DATABASES = ("mariadb", "temporal-database")
TEMPORAL = ("temporal", "temporal-database", "temporal-namespace", "temporal-schema", "temporal-ui")
# They run once; what stays is checked by the health of what they made ready.
RUN_ONCE = ("migrate", "temporal-namespace", "temporal-schema")
PASSWORDS = {
    "SYNC_APP_PASSWORD": "app1",
    "SYNC_MIGRATION_PASSWORD": "migration1",
    "TEMPORAL_DATABASE_PASSWORD": "temporal1",
}
CLOUD = {"TEMPORAL_ADDRESS": "eu.example:7233", "TEMPORAL_NAMESPACE": "sync.a1b2c", "TEMPORAL_API_KEY": "a key"}
DOCKER_COMPOSE = Path(sys.executable).with_name("docker-compose")


def run_config(
    environment: Mapping[str, str], *files: str, program: Path = DOCKER_COMPOSE
) -> subprocess.CompletedProcess[str]:
    """`docker-compose config` of the files, in an environment with nothing of ours but what is given."""
    named = [part for file in ("docker-compose.yml", *files) for part in ("--file", str(ROOT / file))]
    return subprocess.run(
        [str(program), "--env-file", os.devnull, *named, "config"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")} | dict(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@cache
def config(*files: str, **more: str) -> dict[str, Any]:
    done = run_config(PASSWORDS | more, *files)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def waits_for(service: dict[str, Any]) -> set[str]:
    """The services that must be there before this one starts."""
    return {name for name, how in service["depends_on"].items() if how["required"]}


def test_every_part_is_there() -> None:
    assert sorted(config()) == sorted((*DATABASES[:1], *TEMPORAL, *ROLES))


@pytest.mark.parametrize("name", PASSWORDS)
def test_no_password_is_made_up_where_none_is_set(name: str) -> None:
    done = run_config({other: word for other, word in PASSWORDS.items() if other != name})
    assert done.returncode != 0
    assert f"required variable {name} is missing a value: set it in .env" in done.stderr


def test_the_passwords_that_are_set_are_those_that_are_used() -> None:
    found = config()
    assert ":app1@" in found["worker"]["environment"]["SYNC_DATABASE_URL"]
    assert ":migration1@" in found["migrate"]["environment"]["SYNC_DATABASE_URL"]
    kept = [found[name]["environment"] for name in ("temporal-database", "temporal-schema", "temporal")]
    assert [word for part in kept for word in part.values() if word == "temporal1"] == ["temporal1"] * 3


def test_temporal_is_kept_in_a_real_database() -> None:
    temporal = config()["temporal"]
    assert temporal["environment"]["DB"].startswith("postgres")
    assert temporal["environment"]["POSTGRES_SEEDS"] == "temporal-database"
    assert temporal["depends_on"]["temporal-schema"]["condition"] == "service_completed_successfully"


def test_what_is_not_set_about_temporal_is_not_handed_on_empty() -> None:
    """An empty key would be a key: the SDK would use TLS."""
    found = config()["worker"]["environment"]
    assert {
        name: found[name] for name in found if re.match("TEMPORAL_(API|TLS)", name) and found[name] is not None
    } == {}


@pytest.mark.parametrize("name", ["api", "relay", "worker"])
def test_temporal_cloud_is_a_matter_of_the_environment(name: str) -> None:
    certificate = {"TEMPORAL_TLS_CLIENT_CERT_DATA": "-----BEGIN", "TEMPORAL_TLS_CLIENT_KEY_DATA": "-----BEGIN KEY"}
    found = config("deploy/compose/temporal-cloud.yml", **CLOUD, **certificate)
    assert set(TEMPORAL) & set(found) == set()
    assert {key: found[name]["environment"].get(key) for key in CLOUD | certificate} == CLOUD | certificate
    assert "temporal-namespace" not in waits_for(found[name])


@pytest.mark.parametrize("missing", ["TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"])
def test_temporal_cloud_asks_for_what_it_needs(missing: str) -> None:
    rest = {key: value for key, value in CLOUD.items() if key != missing}
    done = run_config(PASSWORDS | rest, "deploy/compose/temporal-cloud.yml")
    assert f"required variable {missing} is missing a value" in done.stderr


def test_the_real_oldhost_takes_the_simulator_s_place() -> None:
    found = config("deploy/compose/real-oldhost.yml", SYNC_OLDHOST_URL="http://10.0.0.7:80")
    assert "simulator" not in found
    assert waits_for(found["worker"]) == {"migrate", "temporal-namespace"}
    assert {found[role]["environment"]["SYNC_OLDHOST_URL"] for role in ROLES[1:]} == {"http://10.0.0.7:80"}


def understood(text: str) -> dict[str, Any]:
    """What `config` printed, without what releases merely spell in different ways."""
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    for service in found.values():
        service["environment"] = {
            name: value for name, value in (service.get("environment") or {}).items() if value is not None
        }
    return {
        name: {part: service.get(part) for part in ("image", "command", "environment", "depends_on", "ports")}
        for name, service in found.items()
    }


@pytest.mark.parametrize("version", composes.OLDER)
@pytest.mark.parametrize(
    "files",
    [
        (),
        ("deploy/compose/real-oldhost.yml",),
        ("deploy/compose/temporal-cloud.yml",),
        ("deploy/compose/real-oldhost.yml", "deploy/compose/temporal-cloud.yml"),
    ],
    ids=" and ".join,
)
def test_the_oldest_compose_that_is_supported_reads_the_files_as_the_newest_does(
    version: str, files: tuple[str, ...]
) -> None:
    if not composes.program(version).exists():
        pytest.skip(f"`make composes` fetches Docker Compose {version}, and it is not here")
    given = PASSWORDS | CLOUD | {"SYNC_OLDHOST_URL": "http://10.0.0.7:80"}
    done = run_config(given, *files, program=composes.program(version))
    assert done.returncode == 0, done.stderr
    assert understood(done.stdout) == understood(run_config(given, *files).stdout)


def test_the_oldest_compose_that_is_tested_is_the_one_that_is_promised() -> None:
    (told,) = re.findall(r"Docker Compose (\S+) or newer", (ROOT / "docs" / "deployment.md").read_text())
    assert told == composes.OLDEST


def test_two_workers_run_and_have_time_to_drain() -> None:
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["worker"]["stop_grace_period"] == "60s"
    assert leaves_within_seconds(load_settings(_env_file=None)) <= 60


@pytest.mark.parametrize("name", [name for name in services if name not in RUN_ONCE])
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    check = services[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


@pytest.mark.parametrize("name", ["api", "relay", "worker"])
def test_a_role_waits_for_schema_and_temporal(name: str) -> None:
    waits = {part: how["condition"] for part, how in services[name]["depends_on"].items()}
    assert waits["migrate"] == "service_completed_successfully"
    assert waits["temporal-namespace"] == "service_completed_successfully"
    assert services["temporal-namespace"]["depends_on"]["temporal"]["condition"] == "service_healthy"


def test_the_migration_waits_for_the_database_and_runs_once() -> None:
    assert services["migrate"]["depends_on"]["mariadb"]["condition"] == "service_healthy"
    assert services["migrate"]["restart"] == "no"


@pytest.mark.parametrize("name", ROLES)
def test_every_role_is_the_same_unprivileged_image(name: str) -> None:
    role = config(OLDHOST_SYNC_VERSION="7.8.9")[name]
    assert (role["image"], role["read_only"], role["cap_drop"]) == ("oldhost-sync:7.8.9", True, ["ALL"])
    assert role["build"]["args"] == {"VERSION": "7.8.9", "REVISION": "unknown"}
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


def images() -> list[str]:
    """Those that are pulled, not built."""
    return [service["image"] for service in services.values() if "build" not in service]


def test_every_image_that_is_pulled_has_its_exact_version() -> None:
    pulled = images()
    assert len(pulled) == 6
    assert [image for image in pulled if not re.search(r":\d+\.\d+(\.\d+)?$", image)] == []


def test_the_image_s_base_is_pinned_by_its_digest() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2


def test_the_temporal_that_is_pinned_is_the_one_that_the_tests_run() -> None:
    told = subprocess.run(
        [need_program("temporal", install="make setup"), "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    found = re.search(r"Server (\S+), UI (\S+)\)", told)
    assert found is not None
    pinned = {image.partition(":")[0]: image.partition(":")[2] for image in images()}
    assert pinned["temporalio/server"] == pinned["temporalio/admin-tools"] == found[1]
    assert pinned["temporalio/ui"] == found[2]


def test_the_mariadb_that_is_pinned_is_of_the_series_that_the_tests_run() -> None:
    """Debian moves on within a series; docs/deployment.md names the last version that was run."""
    (pinned,) = [image.partition(":")[2] for image in images() if image.startswith("mariadb:")]
    program = need_program("mariadbd", install="make mariadb")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"(\d+\.\d+)\.\d+-MariaDB", told)
    assert found is not None
    if found[1] != pinned.rpartition(".")[0]:
        pytest.skip(f"MariaDB {found[1]} is installed here; the pinned series is run where Debian 12 is")
    assert f"MariaDB {pinned}" in (ROOT / "docs" / "deployment.md").read_text()


@pytest.mark.parametrize("name", services)
def test_nothing_but_a_database_keeps_a_right_of_root(name: str) -> None:
    if name in DATABASES:  # their images start as root and become mysql and postgres
        return
    assert services[name]["cap_drop"] == ["ALL"]
    assert services[name]["security_opt"] == ["no-new-privileges:true"]


def test_every_setting_in_it_exists() -> None:
    known = {f"SYNC_{name.upper()}" for name in Settings.model_fields}
    told = {
        name for service in services.values() for name in service.get("environment", {}) if name.startswith("SYNC_")
    }
    assert told <= known


# Files, which need mounts of one's own.
NOT_HANDED_ON = {f"SYNC_{name.upper()}" for name in Settings.model_fields if name.endswith("_file")}


def test_every_setting_is_handed_on_to_the_role_that_reads_it() -> None:
    told = {name for role in ("api", "relay", "worker") for name in services[role]["environment"]}
    known = {f"SYNC_{name.upper()}" for name in Settings.model_fields}
    assert known - told == NOT_HANDED_ON


def test_a_setting_reaches_the_role_and_one_that_is_not_set_is_not_there() -> None:
    found = config(SYNC_QUOTA_EMERGENCIES="75", SYNC_OLDHOST_URLS="north=http://10.0.0.9:80")
    assert found["api"]["environment"]["SYNC_QUOTA_EMERGENCIES"] == "75"
    assert found["worker"]["environment"]["SYNC_OLDHOST_URLS"] == "north=http://10.0.0.9:80"
    assert found["api"]["environment"].get("SYNC_API_IDLE_SECONDS") is None


def test_every_volume_that_is_used_is_declared() -> None:
    used = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert used == set(compose["volumes"])


def test_the_image_runs_as_nobody_in_particular_from_locked_packages() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    last_stage = dockerfile.rsplit("\nFROM ", 1)[1]
    assert re.search(r"^USER 10001$", last_stage, re.MULTILINE)
    fetching = re.findall(r"/bin/pip (?:install|wheel) (.*?)(?: \\)?$", dockerfile, re.MULTILINE)
    assert len(fetching) == 4
    assert [step for step in fetching if "--require-hashes" not in step and "--no-index" not in step] == []
    copied = re.findall(r"^COPY (\w+) \./\1$", dockerfile, re.MULTILINE)
    assert copied == ["activities", "migrations", "oldhost_simulator", "oldhost_sync", "workflows"]


def test_the_example_settings_are_the_settings() -> None:
    example = re.findall(r"^#(SYNC_\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert sorted(example) == sorted(f"SYNC_{name.upper()}" for name in Settings.model_fields)


def test_all_relays_write_settlement_files_to_a_volume_that_the_image_lets_them_write_to() -> None:
    relay = config()["relay"]
    (volume,) = relay["volumes"]
    assert (volume["type"], volume["target"]) == ("volume", relay["environment"]["SYNC_SETTLEMENT_DIR"])
    image = (ROOT / "Dockerfile").read_text()
    assert f"install --directory --owner=sync {volume['target']}\n" in image
