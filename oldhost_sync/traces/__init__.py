"""Traces: one for each change, from the request that made it to the operation on the wire (SYNC_TRACES).

A change waits in tables and in a workflow that lives for weeks, and shares signals, sends and operations with others;
no context that is handed on from call to call survives that. So the trace of a change is known by its name
(`change_trace`): whatever a process knows of a change it adds to that trace (`change_spans`), and nothing has to be
carried along. Spans are made outside the workflow. They are dropped rather than waited for (`otlp_export`), and no
payload, no idempotency key and no text of OldHost's is in any.
"""
