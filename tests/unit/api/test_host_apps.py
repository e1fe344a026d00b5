"""Which host a path names."""

from __future__ import annotations

import pytest

from oldhost_sync.api.routes.hosts import host_in


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api/hosts/north/changes", ("north", "/api/changes")),
        ("/console/hosts/north/alerts", ("north", "/console/alerts")),
        ("/console/hosts/north", ("north", "/console")),
        ("/console/hosts/north/", ("north", "/console")),
        ("/console/hosts", None),
        ("/api/changes", None),
    ],
)
def test_the_host_stands_behind_the_first_part_and_the_rest_is_the_path(
    path: str, named: tuple[str, str] | None
) -> None:
    assert host_in(path) == named
