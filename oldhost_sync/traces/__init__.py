"""Traces: one for each change, from the request that made it to the operation on the wire (SYNC_TRACES).

A change waits in tables and in a workflow that lives for weeks, and shares signals, sends and operations with others;
no trace context passed from call to call survives that. So the ids of a trace are derived from what names the change
(`change_trace`): each process adds its own spans to that trace (`change_spans`), and no context is passed on. Spans are
made outside the workflow. They are dropped rather than waited for (`otlp_export`). None contains a payload, an
idempotency key or a text of OldHost.
"""
