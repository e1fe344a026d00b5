"""The mutants, in a file for each part of the product."""

from __future__ import annotations

from tests.mutants.catalogue import (
    applications,
    certainty,
    developers,
    doors,
    drivers,
    frames,
    kinds_of_host,
    ledger,
    mappings,
    odd_hosts,
    oldhost,
    own_api,
    policy,
    processes,
    store,
    told,
    withdrawal,
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
    *kinds_of_host.MUTANTS,
    *told.MUTANTS,
    *processes.MUTANTS,
    *applications.MUTANTS,
    *withdrawal.MUTANTS,
    *developers.MUTANTS,
)
