"""Access to Temporal for every role: connecting, the data converter, starting and signalling the writer.

The address, namespace, key and TLS come from the SDK's own environment configuration (`TEMPORAL_ADDRESS`, …).
Large values (a snapshot of 50,000 waiting keys, a page of refs) are compressed; small ones stay readable in Temporal's
UI. A payload that another SDK sent without our codec is read as it is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
import zlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.envconfig import ClientConfig
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import KeepAliveConfig

from oldhost_sync.credentials import EncryptionKey
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.machine.snapshot import COMPRESSION_LEVEL
from oldhost_sync.temporal.payload_encryption import EncryptPayloads
from workflows.messages import TASK_QUEUE, WORKFLOW_TYPE, EnqueueBatch, WriterInput, WriterPolicy, workflow_id

if TYPE_CHECKING:
    from oldhost_sync.host_settings import HostSettings
    from oldhost_sync.settings import Settings

# The prefix of the SDK's own metrics.
SDK_METRICS = "oldhost_sync_temporal_"
COMPRESS_ABOVE_BYTES = 16 * 1024
# A snapshot of 150,000 waiting changes has about 10 MB; a small signal must not expand to gigabytes.
EXPANDED_BYTES_MAX = 64 * 1024 * 1024
_ENCODING = b"binary/zlib"
# A connection on which nothing arrives any more, such as one that a firewall has forgotten, is replaced after both. The
# server ends connections that ask more often than every 10 s (its `frontend.keepAliveMinTime`).
KEEP_ALIVE = KeepAliveConfig(interval_millis=12_000, timeout_millis=4_000)


class CompressLarge(PayloadCodec):
    """Compresses payloads above 16 KiB; anything else passes through untouched."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._compress(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._expand(payload) for payload in payloads]

    @staticmethod
    def _compress(payload: Payload) -> Payload:
        if len(payload.data) <= COMPRESS_ABOVE_BYTES:
            return payload
        return Payload(
            metadata={"encoding": _ENCODING}, data=zlib.compress(payload.SerializeToString(), COMPRESSION_LEVEL)
        )

    @staticmethod
    def _expand(payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _ENCODING:
            return payload
        try:
            return Payload.FromString(_unzip(payload.data))
        except (zlib.error, DecodeError):
            return payload  # not from our codec; an error here would fail a workflow's task for ever


def _unzip(data: bytes) -> bytes:
    """Raises zlib.error for data that our codec can't have produced."""
    stream = zlib.decompressobj()
    expanded = stream.decompress(data, EXPANDED_BYTES_MAX)
    if not stream.eof:
        raise zlib.error("truncated, or larger than anything we send")
    return expanded


class TemporalUnavailable(RuntimeError):  # noqa: N818 - it says what happened
    """No connection to Temporal: the operator must start it or correct its address. Callers may retry."""


class CompressThenEncrypt(PayloadCodec):
    """In this order, because encrypted data can't be compressed."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self._compress = CompressLarge()
        self._encrypt = EncryptPayloads(keys)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._encrypt.encode(await self._compress.encode(payloads))

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return await self._compress.decode(await self._encrypt.decode(payloads))


def data_converter(keys: Sequence[EncryptionKey]) -> DataConverter:
    """Our data converter. With keys, the texts of failures are encrypted, too."""
    converter = dataclasses.replace(DataConverter.default, payload_codec=CompressThenEncrypt(keys))
    if not keys:
        return converter
    return dataclasses.replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


# The data converter of a deployment without encryption.
DATA_CONVERTER = data_converter(())


def sdk_runtime(settings: Settings) -> Runtime:
    """Makes the SDK use our logging, and serve its own metrics at SYNC_TEMPORAL_METRICS_BIND if that is set.

    Raises SettingsError if it can't listen there.
    """
    served = None
    if settings.temporal_metrics_bind:
        served = PrometheusConfig(
            bind_address=settings.temporal_metrics_bind,
            counters_total_suffix=True,
            unit_suffix=True,
            durations_as_seconds=True,
        )
    log = LoggingConfig(
        TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logging.getLogger("temporalio.core")),
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=log, metrics=served, metric_prefix=SDK_METRICS))
    except (RuntimeError, ValueError) as error:
        from oldhost_sync.settings import SettingsError

        raise SettingsError(f"SYNC_TEMPORAL_METRICS_BIND: can't listen there ({error})") from error


async def connect(runtime: Runtime | None = None, *, keys: Sequence[EncryptionKey] = ()) -> Client:
    """A client for the server that the environment names (default 127.0.0.1:7233, namespace default).

    `keys`: encrypt what Temporal stores. `runtime`: see :func:`sdk_runtime`. Raises TemporalUnavailable if it can't be
    reached, or if the environment's settings for it can't be used: a file of theirs may appear later.
    """
    converter = data_converter(keys)
    try:
        config = ClientConfig.load_client_connect_config()
    except OSError as error:
        raise _unusable(str(error)) from error
    except (ValueError, RuntimeError):
        # Its text may quote the file's line, and so a key; nor is it kept as a cause, which a traceback would show.
        raise _unusable("check TEMPORAL_CONFIG_FILE, and that it has TEMPORAL_PROFILE") from None
    config.setdefault("target_host", "127.0.0.1:7233")
    try:
        return await Client.connect(**config, data_converter=converter, runtime=runtime, keep_alive_config=KEEP_ALIVE)
    except (OSError, ValueError) as error:
        raise _unusable(str(error)) from error
    except RuntimeError as error:  # the SDK raises nothing more specific
        raise TemporalUnavailable(f"Temporal can't be reached at {config['target_host']}") from error


def _unusable(why: str) -> TemporalUnavailable:
    return TemporalUnavailable(f"the settings for Temporal (TEMPORAL_…) can't be used: {why}")


class SharedClient:
    """One client that connects at its first use. Callers share one attempt to connect.

    `seconds_max`: how long connecting may take.
    """

    def __init__(self, connect: Callable[[], Awaitable[Client]], seconds_max: float) -> None:
        self._connect = connect
        self._seconds_max = seconds_max
        self._connecting: asyncio.Task[Client] | None = None

    async def get(self) -> Client:
        """Raises what `connect` does, or TimeoutError; the next call tries again."""
        if self._connecting is None or (self._connecting.done() and self._connecting.exception() is not None):
            self._connecting = asyncio.ensure_future(self._connect_once())
        return await asyncio.shield(self._connecting)

    async def _connect_once(self) -> Client:
        async with asyncio.timeout(self._seconds_max):
            return await self._connect()


def writer_policy(of_host: HostSettings) -> WriterPolicy:
    """The policy of a host's writer, in milliseconds."""
    return WriterPolicy(
        debounce_ms=round(of_host.debounce_seconds * 1000),
        max_wait_ms=round(of_host.max_wait_seconds * 1000),
        txn_per_lww=of_host.txn_per_lww,
        ban_ms=round(of_host.ban_seconds * 1000),
        sweep_ms=round(of_host.sweep_seconds * 1000),
        probe_ms=round(of_host.probe_seconds * 1000),
        early_send_ms=round((of_host.early_send_seconds or 0) * 1000),
        consistency_ms=of_host.promises.consistency_ms,
        emergency_ms=of_host.promises.emergency_ms,
    )


def writer_policies(settings: Settings) -> Callable[[str], WriterPolicy]:
    """The same by host."""
    return cache(lambda host: writer_policy(settings.of_host(host)))


def writer_handle(client: Client, host: str) -> WorkflowHandle[object, object]:
    """The writer of `host`, for queries and updates."""
    return client.get_workflow_handle(workflow_id(host))


async def start_writer(client: Client, host: str, policy: WriterPolicy) -> WorkflowHandle[object, object]:
    """Start the writer or attach to the running one; safe to call at any time, from anywhere."""
    return await _start(client, host, policy, static_summary=f"OldHost Sync writer of {host}")


async def _start(client: Client, host: str, policy: WriterPolicy, **more: Any) -> WorkflowHandle[object, object]:
    return await client.start_workflow(
        WORKFLOW_TYPE,
        WriterInput(host=host, policy=policy),
        id=workflow_id(host),
        task_queue=TASK_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        **more,
    )


async def signal_enqueue(client: Client, host: str, policy: WriterPolicy, refs: Sequence[ChangeRef]) -> None:
    """Hand refs to the writer, starting it if needed. When this returns, they are durable in the writer's history."""
    batch = [EnqueueBatch.of(refs)]
    limit = timedelta(seconds=10)
    await _start(client, host, policy, start_signal="enqueue", start_signal_args=batch, rpc_timeout=limit)


def leave(code: int) -> NoReturn:
    """Flush all output and end the process without the interpreter's teardown.

    A thread of the SDK's core may still be returning a finished call, or a line of its log, when a process ends. The
    interpreter then aborts in its teardown (temporalio/sdk-python issue 300), so that what succeeded appears to crash;
    or it waits for that thread, which waits for it, for ever.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # stderr is written line by line, and a flush would wait for a reader that has stopped
