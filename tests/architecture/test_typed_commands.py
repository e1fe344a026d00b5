"""What the pages tell an operator of compose or Kubernetes to type names what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.project_files import ROOT

PAGES = (ROOT / "README.md", ROOT / "docker-compose.yml", *sorted((ROOT / "docs").glob("*.md")))
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DEPLOYMENTS = {path.stem for path in (ROOT / "deploy" / "kubernetes" / "base").glob("*.yaml")} & {*SERVICES}


def typed(program: str) -> list[tuple[str, str]]:
    """Each command of this program, with the page that has it."""
    found = [(path.name, text) for path in PAGES for text in re.findall(rf"{program} ([^`#\n|&;)]+)", path.read_text())]
    assert len(found) > 5
    return found


@pytest.mark.parametrize(("page", "command"), typed("docker compose"))
def test_a_command_of_compose_names_services_that_are_there(page: str, command: str) -> None:
    words = [word.strip(",") for word in command.split()]
    named = [word for word in words[1:] if not word.startswith("-")]
    if words[0] in {"exec", "run"}:
        assert named[0] in SERVICES, page
    else:
        assert words[0] in {"build", "ps", "stop", "up"}, page
        assert set(named) <= SERVICES.keys(), page


@pytest.mark.parametrize(("page", "command"), typed("kubectl"))
def test_a_command_of_kubernetes_names_what_is_deployed(page: str, command: str) -> None:
    assert set(re.findall(r"deployment/(\w+)", command)) <= DEPLOYMENTS, page
    assert re.findall(r"(?:job|pod|statefulset)/(\w+)", command) == [], page
    folders = [name for name in re.findall(r"-k (\S+)", command) if not name.endswith("/mine")]
    assert [name for name in folders if not Path(ROOT, name).is_dir()] == [], page
    if not command.startswith(("create namespace", "label namespace", "apply", "kustomize")):
        assert "--namespace=oldhost-sync" in command or "exec" in command, page


def test_every_role_is_a_deployment() -> None:
    assert {"api", "relay", "worker"} == DEPLOYMENTS
