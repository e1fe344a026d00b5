"""A Temporal Schedule starts this each night: it requests a resync of one host and ends; the relay does the rest."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import CancelledError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.calls import NoResult, result_of
    from workflows.messages import NIGHTLY_RESYNC_TYPE, NightlyResync


@workflow.defn(name=NIGHTLY_RESYNC_TYPE)
class NightlyResyncWorkflow:
    @workflow.run
    async def run(self, nightly: NightlyResync) -> int:
        """The resync's number; that of the previous one, if it is not finished yet."""
        try:
            number: int = await result_of(nightly)
            return number
        except NoResult as error:
            if error.__cause__ is not None and is_cancelled_exception(error.__cause__):
                raise CancelledError("cancelled while it asked") from error
            raise
