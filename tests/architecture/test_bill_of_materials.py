"""Every locked package has a licence that we may use, and the bill of materials names what the image holds."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from deploy.bill_of_materials import licence_of
from tests.architecture.bill_of_materials import IMAGE_LOCK, Component, components, locked
from tests.architecture.project_files import ROOT


def test_every_package_has_a_licence_that_is_allowed() -> None:
    assert [each for each in components() if not each.is_allowed] == []


def test_what_is_installed_is_what_is_locked() -> None:
    """The licences are read from what is installed."""
    assert [each for each in components() if metadata.version(each.name) != each.version] == []


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("", False),
    ],
)
def test_a_forbidden_or_unknown_licence_is_noticed(licence: str, is_allowed: bool) -> None:
    assert Component("some-package", "1.0", licence, in_image=True).is_allowed == is_allowed


def test_a_licence_nobody_has_heard_of_counts_as_unknown() -> None:
    told = Message()
    told["License"] = "Fair Trade Licence"
    assert licence_of(told) == ""


def names_of(bill: dict[str, Any], kind: str) -> dict[str, str]:
    """The names and versions of one kind of package; `kind`: as its address (purl) begins."""
    listed = (each for each in bill["components"] if each["purl"].startswith(f"pkg:{kind}/"))
    return {each["name"]: each["version"] for each in listed}


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    """What the image's build writes, of this machine."""
    if not Path("/var/lib/dpkg/status").exists():
        pytest.skip("this machine is not a Debian, as the image is")
    done = subprocess.run(
        [sys.executable, "deploy/bill_of_materials.py"], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_bill_of_materials_names_python_itself_and_every_package_of_the_image(bill: dict[str, Any]) -> None:
    assert names_of(bill, "generic") == {"python": platform.python_version()}
    held = names_of(bill, "pypi")
    assert {name: held.get(name) for name, _version, always in locked(IMAGE_LOCK) if always} == {
        name: version for name, version, always in locked(IMAGE_LOCK) if always
    }


def test_the_bill_of_materials_names_every_package_of_debian(bill: dict[str, Any]) -> None:
    asked = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\n"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    installed = {line.split()[1] for line in told if line.startswith("installed ")}
    assert set(names_of(bill, "deb")) == installed
    assert len(installed) > 50


def test_the_image_writes_its_own_bill_of_materials() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^COPY deploy/bill_of_materials.py ", dockerfile, re.MULTILINE)
    assert re.search(
        r"/app/bin/python -I bill_of_materials\.py > /app/bill-of-materials\.json$", dockerfile, re.MULTILINE
    )
    assert "!deploy/bill_of_materials.py" in (ROOT / ".dockerignore").read_text().splitlines()
