"""The example applications, each with its own tests, as their authors run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.mariadb
@pytest.mark.temporal
@pytest.mark.parametrize("name", ["fastapi-bookings", "django-bookings"])
def test_its_tests_pass_without_servers_and_on_real_ones(name: str) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "tests")
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, cwd=EXAMPLES / name, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


def test_the_page_shows_the_fastapi_example_as_it_is() -> None:
    page = (EXAMPLES.parent / "docs" / "applications.md").read_text()
    application = (EXAMPLES / "fastapi-bookings" / "bookings.py").read_text()
    shown = application[application.index("    @app.post") : application.index("    @app.get")].rstrip()
    assert "\n".join(line.removeprefix("    ") for line in shown.splitlines()) in page
