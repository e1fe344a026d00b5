"""What fails for one host of a round ends nothing for the others: the round goes on, and tells of the failures at its
end. But an outage of the database is no host's own: it ends the round, since each further host would wait for it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from oldhost_sync.store.errors import DatabaseUnavailable, StatementRefused, StatementTooSlow


class HostsFailed(Exception):  # noqa: N818 - says what happened
    """A round was done for all hosts but these; `by_host` has the first error of each."""

    def __init__(self, by_host: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"{host}: {error}" for host, error in by_host.items()))
        self.by_host = dict(by_host)


class HostFailures:
    """`with HostFailures() as failures:` is a round, `with failures.of(host):` one host's part of it. At its end the
    round raises HostsFailed if a part failed. An outage is raised at once, as it is.
    """

    def __init__(self) -> None:
        self._by_host: dict[str, Exception] = {}

    @contextmanager
    def of(self, host: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self._by_host.setdefault(host, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._by_host:
            raise HostsFailed(self._by_host)


def is_outage(error: Exception) -> bool:
    """Whether MariaDB is away, for all hosts; a statement that took too long, or was refused, is one host's own."""
    return isinstance(error, DatabaseUnavailable) and not isinstance(error, StatementTooSlow | StatementRefused)
