"""deploy/kubernetes: accepted by Kubernetes' own schemas, and as safe as was meant; no cluster is needed to see it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from oldhost_sync.roles.worker import leaves_within_seconds
from oldhost_sync.settings import Settings, load_settings
from tests.architecture.project_files import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
# The oldest release whose schema knows all that is used, and the newest that is known here.
OLDEST, NEWEST = "1.30", "1.37"
ROLES = ("api", "relay", "worker")
FILES = sorted(path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml")


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


@cache
def written() -> list[dict[str, Any]]:
    """Every object as it stands in the files."""
    return [each for path in FILES for each in documents(path.read_text())]


@cache
def built() -> list[dict[str, Any]]:
    """Every object of the example as kustomize builds it."""
    return build(FOLDER / "overlays" / "example")


def build(overlay: Path) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl builds the example, and is not here")
    command = ["kubectl", "kustomize", str(overlay)]
    return documents(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in written() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(name: str) -> dict[str, Any]:
    """A role's pod, with what the base adds to each; `built` has the same from kustomize itself."""
    spec: dict[str, Any] = one("Deployment", name)["spec"]["template"]["spec"]
    (added,) = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())["patches"]
    more: dict[str, Any] = yaml.safe_load(added["patch"])["spec"]["template"]["spec"]
    return spec | more


def built_pod(name: str) -> dict[str, Any]:
    (found,) = [each for each in built() if (each["kind"], each["metadata"]["name"]) == ("Deployment", name)]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def migration(name: str) -> dict[str, Any]:
    """What runs in a role's pod before the role."""
    (found,) = pod(name)["initContainers"]
    return dict(found)


def test_every_file_is_what_the_oldest_kubernetes_takes() -> None:
    assert len(written()) > 15
    for each in written():
        kubernetes_validate.validate(each, OLDEST, strict=True)


def test_what_kustomize_builds_is_what_the_newest_kubernetes_takes() -> None:
    for each in built():
        kubernetes_validate.validate(each, NEWEST, strict=True)


def test_a_field_that_does_not_exist_is_noticed() -> None:
    wrong = one("PodDisruptionBudget", "api") | {"spec": {"minAvailabel": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def test_the_example_builds_every_object_with_its_image_and_settings() -> None:
    assert {each["metadata"]["name"].split("-")[0] for each in built()} >= {
        *ROLES,
        "settings",
        "oldhost",
        "mariadb",
    }
    pods = [built_pod(role) for role in ROLES]
    all_of_them = [each for spec in pods for each in (*spec["containers"], *spec["initContainers"])]
    assert len(all_of_them) == 2 * len(ROLES)
    (image,) = {each["image"] for each in all_of_them}
    assert image.startswith("registry.example.com/oldhost-sync:")
    (settings,) = {each["envFrom"][0]["configMapRef"]["name"] for each in all_of_them}
    assert settings.startswith("settings-")  # another content has another name, which starts the roles anew


@pytest.mark.parametrize("role", ROLES)
def test_each_role_runs_twice_and_one_is_always_left(role: str) -> None:
    deployment = one("Deployment", role)["spec"]
    assert (deployment["replicas"], deployment["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, 0)
    budget = one("PodDisruptionBudget", role)["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"] == deployment["selector"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_has_no_more_rights_than_it_needs(role: str) -> None:
    assert pod(role)["automountServiceAccountToken"] is False
    assert pod(role)["securityContext"]["runAsNonRoot"] is True
    assert pod(role)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (container(role), migration(role)):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_asks_for_what_it_needs_and_has_a_limit_of_memory(role: str) -> None:
    for resources in (container(role)["resources"], migration(role)["resources"]):
        assert {"cpu", "memory"} <= resources["requests"].keys()
        assert "memory" in resources["limits"]
        assert "cpu" not in resources["limits"]  # throttled, it loses its session or answers late


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_asked_whether_it_lives_and_whether_it_can_work(role: str) -> None:
    paths = {name: container(role)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: get["path"] for name, get in paths.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    served = {port["name"] for port in container(role)["ports"]}
    assert {get["port"] for get in paths.values()} <= served


def test_a_worker_has_time_to_finish_what_is_on_the_wire() -> None:
    assert pod("worker")["terminationGracePeriodSeconds"] >= leaves_within_seconds(load_settings(_env_file=None))


def test_only_the_migration_may_change_tables_and_only_the_api_knows_the_tokens() -> None:
    def secrets(of: dict[str, Any], role: str) -> set[str]:
        volumes = {each["name"]: each["secret"]["secretName"] for each in pod(role)["volumes"] if "secret" in each}
        mounted = {volumes[each["name"]] for each in of["volumeMounts"] if each["name"] in volumes}
        return mounted | {each["secretRef"]["name"] for each in of["envFrom"] if "secretRef" in each}

    assert {role: secrets(migration(role), role) for role in ROLES} == {
        role: {"oldhost-sync-migration"} for role in ROLES
    }
    assert {role: secrets(container(role), role) for role in ROLES} == {
        "api": {"oldhost-sync", "oldhost-sync-keys", "oldhost-sync-api"},
        "relay": {"oldhost-sync", "oldhost-sync-keys"},
        "worker": {"oldhost-sync", "oldhost-sync-keys"},
    }


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_told_where_its_keys_and_tokens_are_mounted(role: str) -> None:
    """What comes by the environment would stay valid until a restart."""
    mounts = {each["mountPath"] for each in container(role)["volumeMounts"] if each.get("readOnly")}
    told = {each["name"]: each["value"] for each in container(role)["env"] if each["name"].endswith("_FILE")}
    assert {str(Path(file).parent) for file in told.values()} == mounts
    assert (
        told.keys()
        == {
            "api": {"SYNC_ACT_KEYS_FILE", "SYNC_API_TOKENS_FILE", "SYNC_TEMPORAL_KEYS_FILE"},
            "relay": {"SYNC_TEMPORAL_KEYS_FILE"},
            "worker": {"SYNC_ACT_KEYS_FILE", "SYNC_TEMPORAL_KEYS_FILE"},
        }[role]
    )
    spec = pod(role)
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    assert {oct(each["secret"]["defaultMode"]) for each in spec["volumes"] if "secret" in each} == {"0o440"}


def test_the_secrets_that_the_page_creates_are_those_that_the_pods_use() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    created = re.findall(r"create secret generic ((?:--\S+ )+)(\S+)$", page, re.MULTILINE)
    files = {name: set(re.findall(r"--from-file=(\S+)", options)) for options, name in created}
    volumes = [each["secret"]["secretName"] for role in ROLES for each in pod(role)["volumes"] if "secret" in each]
    by_environment = [
        each["secretRef"]["name"]
        for role in ROLES
        for part in (container(role), migration(role))
        for each in part["envFrom"]
        if "secretRef" in each
    ]
    assert files.keys() == {*volumes, *by_environment}
    told = {each["value"] for role in ROLES for each in container(role)["env"] if each["name"].endswith("_FILE")}
    at = {"/etc/oldhost-sync/keys": "oldhost-sync-keys", "/etc/oldhost-sync/api": "oldhost-sync-api"}
    assert {(at[str(Path(each).parent)], Path(each).name) for each in told} == {
        (name, file) for name, held in files.items() for file in held
    }


# What Kubernetes refuses to change in an object that exists.
UNCHANGEABLE = {"Deployment": ("selector",), "Service": ("clusterIP",), "PersistentVolumeClaim": ("accessModes",)}
# And those of which nothing that matters can be changed.
NEVER_AGAIN = {"Job", "Pod"}


def test_nothing_is_deployed_that_can_not_be_applied_again() -> None:
    assert {each["kind"] for each in written()} & NEVER_AGAIN == set()


def test_another_version_with_other_settings_can_be_applied_over_this_one(tmp_path: Path) -> None:
    example = FOLDER / "overlays" / "example"
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    other = tmp_path / "kubernetes" / "overlays" / "example"
    text = (example / "kustomization.yaml").read_text()
    (other / "kustomization.yaml").write_text(re.sub(r"newTag: \S+", "newTag: 7.8.9", text))
    (other / "settings.env").write_text((example / "settings.env").read_text() + "SYNC_DEBOUNCE_SECONDS=60\n")
    before, after = (
        {(each["kind"], each["metadata"]["name"]): each for each in found} for found in (built(), build(other))
    )
    assert before != after
    for key in before.keys() & after.keys():
        for part in UNCHANGEABLE.get(key[0], ()):
            assert before[key]["spec"].get(part) == after[key]["spec"].get(part)


def test_nothing_is_reached_that_no_policy_allows() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in written() if each["kind"] == "NetworkPolicy"}
    assert policies["deny-everything-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    speaks_to_oldhost = policies["oldhost"]["podSelector"]["matchLabels"]
    assert speaks_to_oldhost == {"app.kubernetes.io/component": "worker"}


def test_with_its_component_both_relays_write_settlement_files_to_one_volume(tmp_path: Path) -> None:
    at = {
        name: os.path.relpath(FOLDER / name, tmp_path.resolve())
        for name in ("overlays/example", "components/settlement")
    }
    overlay = {"resources": [at["overlays/example"]], "components": [at["components/settlement"]]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    found = {(each["kind"], each["metadata"]["name"]): each for each in build(tmp_path)}
    for each in found.values():
        kubernetes_validate.validate(each, NEWEST, strict=True)
    assert found["PersistentVolumeClaim", "settlement"]["spec"]["accessModes"] == ["ReadWriteMany"]
    spec = found["Deployment", "relay"]["spec"]["template"]["spec"]
    (relay,) = spec["containers"]
    given = {each["name"]: each["value"] for each in relay["env"]}
    mounts = {each["mountPath"]: each["name"] for each in relay["volumeMounts"]}
    claims = {each["name"]: each.get("persistentVolumeClaim", {}).get("claimName") for each in spec["volumes"]}
    assert claims[mounts[given["SYNC_SETTLEMENT_DIR"]]] == "settlement"
    assert "SYNC_METRICS_BIND" in given
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"]


def test_every_setting_that_is_given_exists() -> None:
    known = {f"SYNC_{name.upper()}" for name in Settings.model_fields}
    text = (FOLDER / "overlays" / "example" / "settings.env").read_text()
    given = {line.split("=")[0] for line in text.splitlines() if line.startswith("SYNC_")}
    given |= {each["name"] for role in ROLES for each in container(role).get("env", [])}
    assert given
    assert given <= known
