"""The HTTP API: accepts changes at once, and reports their fates."""
