"""Connecting to Temporal with settings that can't be used: an outage like any other, told with its reason. A limit of
Temporal's is told as one, and is no outage.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowUpdateHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writer_link import TemporalWriterLink
from oldhost_sync.explanations import explain
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.relay.writers import TemporalDoesNotAnswer, TemporalWriters
from oldhost_sync.temporal.client import TemporalUnavailable, connect
from oldhost_sync.temporal.writer_client import Cause, WriterBusy, WriterClient, WriterUnavailable
from oldhost_sync.temporal.writer_health import WriterHealth, WriterState
from workflows.messages import OperatorAct


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"TEMPORAL_TLS_CLIENT_CERT_PATH": "/nope/crt", "TEMPORAL_TLS_CLIENT_KEY_PATH": "/nope/key"}, "/nope/crt"),
        ({"TEMPORAL_ADDRESS": "host:1:x"}, "invalid port number"),
        ({"TEMPORAL_PROFILE": "nobody"}, "TEMPORAL_PROFILE"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:1"}, "can't be reached at 127.0.0.1:1"),
    ],
)
def test_whatever_is_wrong_temporal_is_unavailable_and_its_users_say_why(
    settings: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TemporalUnavailable, match=reason):
        asyncio.run(connect())
    with pytest.raises(TemporalDoesNotAnswer, match=reason):
        asyncio.run(TemporalWriters(lambda _: WriterPolicy()).health("oldhost"))
    with pytest.raises(WriterUnavailable, match=reason):
        asyncio.run(WriterClient("oldhost", query_seconds=5, update_seconds=5, connect=connect).query("status"))


def test_no_line_of_the_configuration_file_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may hold a key, and the parser quotes it."""
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default]\napi_key = "secret')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    with pytest.raises(TemporalUnavailable, match="TEMPORAL_CONFIG_FILE") as told:
        asyncio.run(connect())
    assert "secret" not in "".join(traceback.format_exception(told.value))


class _AtItsLimit(Interceptor):
    """Temporal that takes no more updates of the run."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's name
        return _Refusing(next)


class _Silent(Interceptor):
    """Temporal whose answers to updates do not come."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's name
        return _NeverAnswering(next)


class _NeverAnswering(OutboundInterceptor):
    """Updates; it answers queries."""

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002
        return await asyncio.Future()

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        return "answered"


@pytest.fixture
def nobody_knows_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def health(client: Client, host: str) -> WriterHealth:
        raise TimeoutError

    monkeypatch.setattr("oldhost_sync.temporal.writer_client.writer_health", health)


async def _silent() -> Client:
    return await Client.connect("127.0.0.1:1", lazy=True, interceptors=[_Silent()])


class _Refusing(OutboundInterceptor):
    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:  # noqa: A002
        raise RPCError("limit on in-flight updates (10)", RPCStatusCode.RESOURCE_EXHAUSTED, b"")

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        return "answered"


async def _limited() -> Client:
    return await Client.connect("127.0.0.1:1", lazy=True, interceptors=[_AtItsLimit()])


def test_a_limit_of_temporals_does_not_open_the_circuit() -> None:
    async def run() -> None:
        link = TemporalWriterLink("oldhost", _limited)
        with pytest.raises(Problem) as busy:
            await link.update("flush", OperatorAct(operator="ana", reason="why"))
        assert str(busy.value.content["type"]).endswith("writer-busy")
        assert await link.query("status") == "answered"

    asyncio.run(run())


def test_the_command_line_tells_of_a_limit_of_temporals_that_others_are_carried_out() -> None:
    writer = WriterClient("oldhost", query_seconds=5, update_seconds=5, connect=_limited)
    with pytest.raises(WriterBusy) as busy:
        asyncio.run(writer.update("flush", OperatorAct(operator="ana", reason="why")))
    assert str(explain(busy.value)) == (
        "the writer is carrying out other requests: Temporal takes no more requests now "
        "(limit on in-flight updates (10)). Repeat it in a moment."
    )


def test_an_act_that_a_busy_writer_has_not_taken_may_be_carried_out_and_nobody_is_told_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def runs(client: Client, host: str) -> WriterHealth:
        return WriterHealth(WriterState.RUNNING)

    monkeypatch.setattr("oldhost_sync.temporal.writer_client.writer_health", runs)
    writer = WriterClient("oldhost", query_seconds=1, update_seconds=0.01, connect=_silent)
    with pytest.raises(WriterBusy) as busy:
        asyncio.run(writer.update("flush", OperatorAct(operator="ana", reason="why")))
    problem = TemporalWriterLink("oldhost", _silent)._problem(busy.value)
    said = [str(explain(busy.value)), f"{problem.content['detail']} {problem.content['action']}"]
    for text in said:
        assert "The act may still be carried out" in text
        assert "ook at the status before you repeat it." in text
        assert "in a moment" not in text


@pytest.mark.usefixtures("nobody_knows_why")
def test_an_act_whose_answer_does_not_come_may_still_be_carried_out_and_the_command_line_says_so() -> None:
    writer = WriterClient("oldhost", query_seconds=0.01, update_seconds=0.01, connect=_silent)
    with pytest.raises(WriterUnavailable) as away:
        asyncio.run(writer.update("pause", OperatorAct(operator="ana", reason="why")))
    assert away.value.may_be_done
    assert str(explain(away.value)).endswith(
        "The act may still be carried out: look at the status before you repeat it."
    )


@pytest.mark.usefixtures("nobody_knows_why")
def test_the_api_says_so_to_who_asked_and_not_to_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oldhost_sync.api.http_limits.WRITER_UPDATE_SECONDS_MAX", 0.01)
    monkeypatch.setattr("oldhost_sync.api.http_limits.WRITER_QUERY_SECONDS_MAX", 0.01)

    async def run() -> None:
        link = TemporalWriterLink("oldhost", _silent)
        for is_told in (True, False):
            with pytest.raises(Problem) as away:
                await link.update("pause", OperatorAct(operator="ana", reason="why"))
            assert ("The act may still be carried out." in str(away.value.content["detail"])) is is_told

    asyncio.run(run())


def test_an_act_that_was_accepted_may_be_done_though_the_run_has_ended_since() -> None:
    away = WriterUnavailable("oldhost", Cause.NO_WRITER, may_be_done=True)
    problem = TemporalWriterLink("oldhost", _silent)._problem(away)
    assert "The act may still be carried out." in str(problem.content["detail"])
