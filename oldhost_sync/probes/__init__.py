"""Liveness and readiness of the worker and the relay, and the server that answers probes and metrics."""
