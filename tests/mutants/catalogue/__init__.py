"""The mutants, in a file for each part of the product."""

from __future__ import annotations

from tests.mutants.catalogue import ledger, oldhost, policy, processes, store

MUTANTS = (*oldhost.MUTANTS, *policy.MUTANTS, *ledger.MUTANTS, *store.MUTANTS, *processes.MUTANTS)
