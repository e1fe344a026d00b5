"""The tracer of a role, by its settings. While traces are off, OpenTelemetry's SDK is not imported."""

from __future__ import annotations

from oldhost_sync.settings import Settings, SettingsError, TraceExport
from oldhost_sync.traces.tracer import Tracer


def role_tracer(settings: Settings, role: str) -> Tracer | None:
    """None while traces are off. SettingsError when the exporter is not installed or can't be set up."""
    if settings.traces is TraceExport.OFF:
        return None
    try:
        from oldhost_sync.traces.otlp_export import otlp_sink
    except ImportError as error:
        raise SettingsError(
            f"SYNC_TRACES is otlp, but {error.name or 'OpenTelemetry'} is not installed: "
            "install oldhost-sync[traces], or set SYNC_TRACES=off"
        ) from error
    try:
        return Tracer(settings.traces_ratio, otlp_sink(role))
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"SYNC_TRACES is otlp, but its exporter can't be set up: {error}") from error
