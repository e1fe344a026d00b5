"""Whether this process is the active relay of a host: the lease as its duties see it.

The lease is for efficiency only: two active relays do no harm. Each duty checks it before a round. The first one that
finds a third of the lease's time over renews it; the others do not wait for that. A process renews the leases of all
its hosts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy.exc import DBAPIError

from oldhost_sync.relay.transactions import SharedPoll, Transactions
from oldhost_sync.store.errors import DatabaseUnavailable, StoreError
from oldhost_sync.store.outbox.outstanding_changes import offer_lease, release_lease, renew_leases, take_lease

# When the lease of each of this process's hosts ends, in monotonic seconds.
Renewals = SharedPoll[dict[str, float]]


def renewals(lease_s: float) -> Renewals:
    """For all hosts of a process: requests within a sixth of the lease's time share a renewal."""
    return SharedPoll(lease_s / 6)


@dataclass(eq=False)
class Leadership:
    """One host's lease, for this process `owner`; `now` arguments are monotonic seconds."""

    transactions: Transactions
    host: str
    owner: str
    lease_s: float
    renewals: Renewals | None = None
    _leased_until: float = float("-inf")
    _tried_at: float = float("-inf")
    _asking: bool = False
    # Why the last try failed; empty if it did not.
    _failure: str = ""

    def held(self, now: float) -> bool:
        """Whether this process has the lease, as last known, without asking the database."""
        return now < self._leased_until

    async def hold(self, now: float) -> bool:
        """Take or renew the lease, and return whether this process has it. The database is asked no more often than at
        each third of the lease's time, even while another relay has it.

        Raises StoreError or DBAPIError while the database is away, even between two tries or while one gets no answer,
        since it is not known then whether another relay has the lease.
        """
        next_try_at = self._tried_at + self.lease_s / 3
        if self._asking or now < next_try_at:
            # A server that hangs ends the try only after its read timeout: many seconds.
            failure = "the database does not answer" if self._asking and now >= next_try_at else self._failure
            if failure and not self.held(now):
                raise DatabaseUnavailable(failure)
            return self.held(now)
        self._tried_at = now
        self._asking = True
        try:
            await self._ask(now)
            self._failure = ""
        except (StoreError, DBAPIError) as error:
            self._failure = str(error)
            raise
        finally:
            self._asking = False
        return self.held(now)

    async def _ask(self, now: float) -> None:
        if self.renewals and self.held(now):
            renewed = await self.renewals.poll(now, partial(self._renew_all, now))
            if self.host in renewed:
                self._leased_until = renewed[self.host]
                self._tried_at = self._leased_until - self.lease_s  # so that the next renewal is shared, too
                return
        span = timedelta(seconds=self.lease_s)
        taken = await self.transactions.run(lambda connection: take_lease(connection, self.host, self.owner, span))
        self._leased_until = now + self.lease_s if taken else float("-inf")

    async def _renew_all(self, now: float) -> dict[str, float]:
        span = timedelta(seconds=self.lease_s)
        hosts = await self.transactions.run(lambda connection: renew_leases(connection, self.owner, span))
        return dict.fromkeys(hosts, now + self.lease_s)

    async def offer(self, now: float) -> bool:
        """Let another relay take the lease, and go on meanwhile. If none has taken it after two thirds of its time, in
        which each other relay tries at least once, this process takes it again. False if it could not be offered now.

        Raises StoreError or DBAPIError.
        """
        if self._asking:
            return False
        self._asking = True
        try:
            span = timedelta(seconds=self.lease_s)
            is_ours = await self.transactions.run(
                lambda connection: offer_lease(connection, self.host, self.owner, span)
            )
        finally:
            self._asking = False
        self._leased_until = now + self.lease_s if is_ours else float("-inf")
        self._tried_at = now + self.lease_s / 3
        return is_ours

    async def release(self) -> None:
        """Release the lease, so that the next relay need not wait for it to expire. Raises StoreError or DBAPIError."""
        await self.transactions.run(lambda connection: release_lease(connection, self.host, self.owner))
