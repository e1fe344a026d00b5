"""Shell completion of event types: those that have a rule."""

from __future__ import annotations

from oldhost_sync.environment import in_database, settings
from oldhost_sync.store.intake.rules import DEFAULT_RULES, rules_of


def event_types(incomplete: str) -> list[str]:
    """The event types that begin with `incomplete`; without a database, those of the default rules."""
    try:
        config = settings()
        known = list(in_database(config, lambda connection: rules_of(connection, config.host)))
    except Exception:  # noqa: BLE001 - an error has no place in the middle of a command line
        known = sorted(DEFAULT_RULES)
    return [event_type for event_type in known if event_type.startswith(incomplete)]
