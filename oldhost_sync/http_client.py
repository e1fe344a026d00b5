"""A client of the HTTP API, for applications that do not write to our database: `SyncClient`, and `AsyncSyncClient`.

    from oldhost_sync.http_client import SyncClient

    with SyncClient("http://127.0.0.1:8000", token) as client:
        accepted = client.submit("unit", "A-101", "unit_status_changed", {"status": "Clean"})
        fate = client.wait(accepted.idempotency_key, seconds=300)

Every write has a key, so one whose answer is lost is repeated and takes effect once. It needs httpx.

What is asked and what answers mean is decided once, in generators that do no IO: they yield a request or a pause, and
are sent the answer. The two clients carry that out.
"""

# ruff: noqa: N818 - a name says what happened, as `except KeyReused` reads

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

T = TypeVar("T")

# Of a request that gets no answer, or one that says to come again.
REQUESTS_MAX = 8
WAIT_SECONDS_MAX = 30.0
# A change has reached its fate in one of these states.
FINAL = frozenset(
    {"APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "WITHDRAWN", "REFUSED", "CANCELLED"}
)  # fmt: skip
_LATER = frozenset({429, 503})


# ---------------------------------------------------------------------------------------------------------- errors


class ClientError(Exception):
    """The API refuses a request, or can't be reached. `kind`: the last part of the problem's type; `action`: what to
    do; `status`: of HTTP, 0 without an answer. `fields`: each wrong field and what is wrong with it.
    """

    def __init__(self, status: int, kind: str, title: str, action: str, wrong: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{title}. {action}".strip())
        self.status = status
        self.kind = kind
        self.action = action
        self.fields = dict(wrong or {})


class Unreachable(ClientError):
    """No answer, after all attempts. A write may have been recorded: repeat it with its key."""


class Unavailable(ClientError):
    """503, after all attempts. After `commit-uncertain` a write may have been recorded: repeat it with its key."""


class TooMany(ClientError):
    """429, after all attempts: more than the token's quota."""


class Unauthenticated(ClientError):
    """401: the token is unknown, expired or for another host."""


class Forbidden(ClientError):
    """403: the token may not do that."""


class NotFound(ClientError):
    """404: there is no such change, unit or host, or it belongs to another token."""


class Invalid(ClientError):
    """400, 413 or 422: the request has a mistake; `fields` names it."""


class KeyReused(ClientError):
    """The idempotency key was used for another change."""


class TooLate(ClientError):
    """409: the present state does not allow it, such as cancelling a change that is recorded."""


class CursorGone(ClientError):
    """410: fates after this cursor are not kept any more. Read the present state, and follow from `latest`."""


_BY_STATUS: dict[int, type[ClientError]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: TooLate,
    410: CursorGone,
    413: Invalid,
    422: Invalid,
    429: TooMany,
    503: Unavailable,
}


# --------------------------------------------------------------------------------------------------------- answers


@dataclass(frozen=True)
class SubmittedChange:
    """The change is stored durably. `change_id`: None while it is scheduled; `replayed`: it was recorded before.
    `expected_at`: when OldHost is expected to have it, if no newer change replaces it; `keeps_promise`: whether the
    promise is kept then. None: nobody can know.
    """

    idempotency_key: str
    sync_status: str
    change_id: int | None = None
    replayed: bool = False
    expected_at: datetime | None = None
    keeps_promise: bool | None = None


@dataclass(frozen=True)
class BatchItem:
    """One change of a batch: `accepted`, or the `error` why it was not recorded."""

    accepted: SubmittedChange | None = None
    error: ClientError | None = None


@dataclass(frozen=True)
class BatchProgress:
    """How many changes of a batch are recorded, how many of these are `open`, and how many are in each state."""

    changes: int
    open: int
    states: Mapping[str, int]


@dataclass(frozen=True)
class ChangeFate:
    """A change's state. `error`: why OldHost, or we, did not take it; `steps`: all that happened to it; `unconfirmed`:
    APPLIED, though no answer says so.
    """

    idempotency_key: str
    state: str
    entity_type: str
    entity_id: str
    event_type: str
    change_id: int | None = None
    priority_class: str | None = None
    nonce: int | None = None
    error: str | None = None
    superseded_by: int | None = None
    unconfirmed: bool = False
    unsure: bool = False
    accepted_at: datetime | None = None
    processed_at: datetime | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    waiting_for: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Whether it has reached its fate. An operator may still retry or discard a dead letter."""
        return self.state in FINAL


@dataclass(frozen=True)
class PreviewedWithdrawal:
    """What a withdrawal would do: how many `changes` it withdraws and how many stay (`bound`), how many states go back
    to an older change that waits, to what OldHost has, or to none. Give `up_to` to `withdraw`.
    """

    up_to: int
    changes: int
    bound: int
    entities: int
    shown_before: int
    shown_at_oldhost: int
    shown_none: int
    operations: int
    seconds_freed: float | None = None
    is_more: bool = False
    by_class: dict[str, int] = field(default_factory=dict)
    by_event_type: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WithdrawalDone:
    """What was withdrawn. `left`: there is more, withdraw again; `locked`: so many another transaction had locked."""

    withdrawal_id: int
    withdrawn: int
    bound: int
    locked: int
    left: bool


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    content: Any = None
    query: Mapping[str, str | int] | None = None
    headers: Mapping[str, str] | None = None


Steps = Generator["_Request | float", "httpx.Response | httpx.TransportError | None", T]


# ------------------------------------------------------------------------------------------------------- decisions


def _asked(request: _Request) -> Steps[httpx.Response]:
    """The answer to a request that may be repeated."""
    pause = 0.1
    for attempt in range(1, REQUESTS_MAX + 1):
        answer = yield request
        is_last = attempt == REQUESTS_MAX
        if isinstance(answer, httpx.Response):
            if answer.status_code < 300:
                if not isinstance(_json(answer), dict):
                    action = "Is the address the API's? A page to sign in may stand before it."
                    raise ClientError(answer.status_code, "unreadable", "The answer is not the API's", action)
                return answer
            if answer.status_code not in _LATER or is_last:
                raise _error(answer.status_code, _json(answer))
            asked = answer.headers.get("retry-after", "")
            yield min(float(asked) if asked.isdigit() else pause, WAIT_SECONDS_MAX)
        elif is_last:
            action = "Is the address right, and is the API up? A write may have been recorded: repeat it with its key."
            raise Unreachable(0, "unreachable", f"No answer ({type(answer).__name__})", action)
        else:
            yield pause
        pause = min(2 * pause, WAIT_SECONDS_MAX)
    raise AssertionError("the last attempt returns or raises")


def _submitted(change: Mapping[str, Any]) -> Steps[SubmittedChange]:
    key = change["idempotency_key"] or str(uuid.uuid4())
    content = {name: value for name, value in change.items() if value is not None} | {"idempotency_key": key}
    answer = yield from _asked(_Request("POST", "/changes", content))
    return _accepted(_json(answer), replayed="idempotency-replayed" in answer.headers)


def _submitted_batch(changes: Iterable[Mapping[str, Any]], batch_key: str | None) -> Steps[list[BatchItem]]:
    """One attempt for all; items that were not recorded for a reason that passes are sent again."""
    made = (str(uuid.uuid4()) if batch_key is None else f"{batch_key}:{index}" for index in count())
    sent = [
        {**change, "idempotency_key": change.get("idempotency_key") or key}
        for change, key in zip(changes, made, strict=False)
    ]
    items: list[BatchItem | None] = [None] * len(sent)
    left = list(range(len(sent)))
    for attempt in range(1, REQUESTS_MAX + 1):
        content = {"changes": [_jsonable(sent[index]) for index in left]}
        results = _json((yield from _asked(_Request("POST", "/changes/batch", content))))["results"]
        for index, result in zip(left, results, strict=True):
            is_recorded = result["status"] == 202
            error = None if is_recorded else _error(result["status"], result["problem"] or {})
            items[index] = BatchItem(_accepted(result, replayed=result["replayed"]) if is_recorded else None, error)
        left = [each for each in left if (item := items[each]) is not None and isinstance(item.error, Unavailable)]
        if not left or attempt == REQUESTS_MAX:
            break
        yield min(0.1 * 2**attempt, WAIT_SECONDS_MAX)
    return [item for item in items if item is not None]


def _progress(batch_key: str) -> Steps[BatchProgress]:
    answer = yield from _asked(_Request("GET", f"/batches/{quote(batch_key, safe='')}"))
    return _built(BatchProgress, _json(answer))


def _fate(key: str) -> Steps[ChangeFate]:
    answer = yield from _asked(_Request("GET", f"/changes/{quote(key, safe='')}"))
    return _built(ChangeFate, _json(answer))


def _waited(key: str, seconds: float, clock: Callable[[], float]) -> Steps[ChangeFate]:
    until, pause = clock() + seconds, 0.25
    while True:
        fate = yield from _fate(key)
        if fate.is_final or clock() >= until:
            return fate
        yield min(pause, max(0.0, until - clock()))
        pause = min(1.5 * pause, 5.0)


def _cancelled(key: str) -> Steps[datetime]:
    answer = yield from _asked(_Request("DELETE", f"/changes/{quote(key, safe='')}"))
    return datetime.fromisoformat(_json(answer)["cancelled_at"])


def _previewed(wanted: Mapping[str, Any]) -> Steps[PreviewedWithdrawal]:
    answer = yield from _asked(_Request("POST", "/withdrawals/preview", _jsonable(wanted)))
    return _built(PreviewedWithdrawal, _json(answer))


def _withdrawn(reason: str, up_to: int, wanted: Mapping[str, Any]) -> Steps[WithdrawalDone]:
    content = {**_jsonable(wanted), "reason": reason, "up_to": up_to}
    return _built(WithdrawalDone, _json((yield from _asked(_Request("POST", "/withdrawals", content)))))


def _page(since: str | None) -> Steps[tuple[list[tuple[ChangeFate, str | None]], str, float]]:
    """The next fates, each with the cursor to keep, the cursor behind them, and how long to wait before the next."""
    page = _json((yield from _asked(_Request("GET", "/changes", query={} if since is None else {"since": since}))))
    fates = [_built(ChangeFate, {**row, "state": row["outcome"]}) for row in page["changes"]]
    cursors = [since] * (len(fates) - 1) + [page["next_cursor"]]
    pause = 0.0 if page["more"] else float(page["next_poll"])
    return list(zip(fates, cursors, strict=False)), page["next_cursor"], pause


def _accepted(content: Mapping[str, Any], *, replayed: bool) -> SubmittedChange:
    return _built(SubmittedChange, {**content, "replayed": replayed})


def _built(kind: type[T], content: Mapping[str, Any]) -> T:
    """What a newer API says besides is passed over."""
    named = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in content.items() if name in named}
    for name in ("accepted_at", "processed_at", "expected_at"):
        if isinstance(given.get(name), str):
            given[name] = datetime.fromisoformat(given[name])
    return kind(**given)


def _json(answer: httpx.Response) -> Any:
    """None: it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _error(status: int, problem: Any) -> ClientError:
    problem = problem if isinstance(problem, Mapping) else {}
    kind = str(problem.get("type", "")).rpartition(":")[2]
    error = KeyReused if kind == "idempotency-key-reused" else _BY_STATUS.get(status, ClientError)
    wrong = {str(each["field"]): str(each["message"]) for each in problem.get("errors") or ()}
    title = str(problem.get("detail") or problem.get("title") or f"Status {status}")
    return error(status, kind, title.rstrip("."), str(problem.get("action", "")), wrong)


def _jsonable(change: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _time(value) for name, value in change.items() if value is not None}


def _time(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _change(
    entity_type: str,
    entity_id: str,
    event_type: str,
    payload: Mapping[str, Any],
    idempotency_key: str | None,
    occurred_at: datetime | str | None,
    not_before: datetime | str | None,
    traceparent: str | None,
) -> dict[str, Any]:
    named = {"entity_type": entity_type, "entity_id": entity_id, "event_type": event_type, "payload": dict(payload)}
    times = {"occurred_at": _time(occurred_at), "not_before": _time(not_before)}
    return {**named, **times, "idempotency_key": idempotency_key, "traceparent": traceparent}


# --------------------------------------------------------------------------------------------------------- clients


@dataclass
class _Target:
    """`url`: of the API; `host`: None for the deployment's own. `seconds`: for each request."""

    url: str
    token: str = field(repr=False)
    host: str | None
    seconds: float

    def options(self) -> dict[str, Any]:
        base = f"{self.url.rstrip('/')}/api" + ("" if self.host is None else f"/hosts/{quote(self.host, safe='')}")
        return {"base_url": base, "headers": {"Authorization": f"Bearer {self.token}"}, "timeout": self.seconds}


def _arguments(request: _Request) -> dict[str, Any]:
    content = {} if request.content is None else {"json": request.content}
    return {"method": request.method, "url": request.path, "params": request.query, **content}


class SyncClient:
    """The API for blocking code; one for all threads. Every method raises a ClientError."""

    def __init__(
        self, url: str, token: str, *, host: str | None = None, seconds: float = 10.0, **httpx_options: Any
    ) -> None:
        self._http = httpx.Client(**(_Target(url, token, host, seconds).options() | httpx_options))
        self._clock = time.monotonic
        self._sleep: Callable[[float], None] = time.sleep

    def submit(
        self,
        entity_type: str,
        entity_id: str,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        occurred_at: datetime | str | None = None,
        not_before: datetime | str | None = None,
        traceparent: str | None = None,
    ) -> SubmittedChange:
        """Record a change: durable when this returns. Without a key, one is made. `traceparent`: your span's."""
        change = _change(
            entity_type, entity_id, event_type, payload, idempotency_key, occurred_at, not_before, traceparent
        )
        return self._run(_submitted(change))

    def submit_batch(self, changes: Sequence[Mapping[str, Any]], *, batch_key: str | None = None) -> list[BatchItem]:
        """Record up to 500 changes, each a mapping of the arguments of `submit`; one item for each, in their order.
        With a `batch_key`, those without a key of their own get it with their place, and `progress` counts them.
        """
        return self._run(_submitted_batch(changes, batch_key))

    def progress(self, batch_key: str) -> BatchProgress:
        """How far the batch is."""
        return self._run(_progress(batch_key))

    def fate(self, idempotency_key: str) -> ChangeFate:
        """What became of a change so far."""
        return self._run(_fate(idempotency_key))

    def wait(self, idempotency_key: str, *, seconds: float) -> ChangeFate:
        """The change's fate, as soon as it has one; its state so far if that takes longer."""
        return self._run(_waited(idempotency_key, seconds, self._clock))

    def cancel(self, idempotency_key: str) -> datetime:
        """Cancel a scheduled change that is not due yet; when it was cancelled. Raises TooLate."""
        return self._run(_cancelled(idempotency_key))

    def preview_withdrawal(self, **wanted: Any) -> PreviewedWithdrawal:
        """What withdrawing the waiting changes with these fields would do: `source`, `event_type`, `entity_type`,
        `entity_id`, `property_id`, `priority_class`, `accepted_before`, `idempotency_key`, `change_id`. With an
        operator's token.
        """
        return self._run(_previewed(wanted))

    def withdraw(self, *, reason: str, up_to: int, **wanted: Any) -> WithdrawalDone:
        """Withdraw the waiting changes with these fields, none newer than the preview's `up_to`."""
        return self._run(_withdrawn(reason, up_to, wanted))

    def follow(self, since: str | None = None) -> Iterator[tuple[ChangeFate, str | None]]:
        """Every fate from `since` on, for ever, each with the cursor that loses none: keep it once the fate is dealt
        with. Some come again after a restart. None: from the oldest; "latest": those that are decided from now on.
        """
        while True:
            page, since, pause = self._run(_page(since))
            yield from page
            if pause:
                self._sleep(pause)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        answer: httpx.Response | httpx.TransportError | None = None
        try:
            while True:
                wanted = steps.send(answer)
                answer = None
                if isinstance(wanted, float):
                    self._sleep(wanted)
                    continue
                try:
                    answer = self._http.request(**_arguments(wanted))
                except httpx.TransportError as error:
                    answer = error
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class AsyncSyncClient:
    """As `SyncClient`, for asyncio."""

    def __init__(
        self, url: str, token: str, *, host: str | None = None, seconds: float = 10.0, **httpx_options: Any
    ) -> None:
        self._http = httpx.AsyncClient(**(_Target(url, token, host, seconds).options() | httpx_options))
        self._clock = time.monotonic
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def submit(
        self,
        entity_type: str,
        entity_id: str,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        occurred_at: datetime | str | None = None,
        not_before: datetime | str | None = None,
        traceparent: str | None = None,
    ) -> SubmittedChange:
        """See `SyncClient.submit`."""
        change = _change(
            entity_type, entity_id, event_type, payload, idempotency_key, occurred_at, not_before, traceparent
        )
        return await self._run(_submitted(change))

    async def submit_batch(
        self, changes: Sequence[Mapping[str, Any]], *, batch_key: str | None = None
    ) -> list[BatchItem]:
        """See `SyncClient.submit_batch`."""
        return await self._run(_submitted_batch(changes, batch_key))

    async def progress(self, batch_key: str) -> BatchProgress:
        """See `SyncClient.progress`."""
        return await self._run(_progress(batch_key))

    async def fate(self, idempotency_key: str) -> ChangeFate:
        """See `SyncClient.fate`."""
        return await self._run(_fate(idempotency_key))

    async def wait(self, idempotency_key: str, *, seconds: float) -> ChangeFate:
        """See `SyncClient.wait`."""
        return await self._run(_waited(idempotency_key, seconds, self._clock))

    async def cancel(self, idempotency_key: str) -> datetime:
        """See `SyncClient.cancel`."""
        return await self._run(_cancelled(idempotency_key))

    async def preview_withdrawal(self, **wanted: Any) -> PreviewedWithdrawal:
        """See `SyncClient.preview_withdrawal`."""
        return await self._run(_previewed(wanted))

    async def withdraw(self, *, reason: str, up_to: int, **wanted: Any) -> WithdrawalDone:
        """See `SyncClient.withdraw`."""
        return await self._run(_withdrawn(reason, up_to, wanted))

    async def follow(self, since: str | None = None) -> AsyncIterator[tuple[ChangeFate, str | None]]:
        """See `SyncClient.follow`."""
        while True:
            page, since, pause = await self._run(_page(since))
            for each in page:
                yield each
            if pause:
                await self._sleep(pause)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        answer: httpx.Response | httpx.TransportError | None = None
        try:
            while True:
                wanted = steps.send(answer)
                answer = None
                if isinstance(wanted, float):
                    await self._sleep(wanted)
                    continue
                try:
                    answer = await self._http.request(**_arguments(wanted))
                except httpx.TransportError as error:
                    answer = error
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
