"""The mutants, in a file for each part of the product."""

from __future__ import annotations

from tests.mutants.catalogue import (
    certainty,
    doors,
    drivers,
    frames,
    ledger,
    mappings,
    odd_hosts,
    oldhost,
    own_api,
    policy,
    processes,
    store,
    told,
)

MUTANTS = (
    *oldhost.MUTANTS,
    *odd_hosts.MUTANTS,
    *policy.MUTANTS,
    *ledger.MUTANTS,
    *mappings.MUTANTS,
    *certainty.MUTANTS,
    *store.MUTANTS,
    *doors.MUTANTS,
    *drivers.MUTANTS,
    *frames.MUTANTS,
    *own_api.MUTANTS,
    *told.MUTANTS,
    *processes.MUTANTS,
)
