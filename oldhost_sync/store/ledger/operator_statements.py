"""The SQL statements for operators' decisions. Each runs under the lock of the host's ledger row.

So none of them waits for a locked outbox row, or every operation of the host would wait too. Instead the decision
fails with a lock wait timeout, releases the ledger's row and is tried again as a whole.
"""

from __future__ import annotations

from oldhost_sync.store.ledger.statements import ARCHIVE, CALLED_A_REPLAY
from oldhost_sync.store.outbox.pending_fates import AT_ONCE, SEQUENCE

CHANGE = (
    "SELECT id, priority_class, entity_type, entity_id, event_type, created_at, outcome, unproven FROM outbox_events "
    "WHERE id = %s AND host = %s FOR UPDATE NOWAIT"
)
REOPEN_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events "
    "SET outcome = NULL, processed_at = NULL, nonce = NULL, error = NULL, unproven = 0, fate_sequence = NULL "
    "WHERE id = %s AND outcome = 'DEAD'"
)
DISCARD_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = 'DISCARDED', processed_at = UTC_TIMESTAMP(6), "
    f"fate_sequence = {SEQUENCE} WHERE id = %s AND (outcome = 'DEAD' OR outcome IS NULL)"
)
# It stays unproven: an operator's word is no answer of OldHost.
CONFIRM_CHANGE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = 'APPLIED', processed_at = UTC_TIMESTAMP(6), error = NULL, "
    f"fate_sequence = {SEQUENCE} WHERE id = %s AND outcome = 'DEAD' AND unproven = 1"
)
ARCHIVE_OF_CHANGE = f"{ARCHIVE} change_id = %s"
DELETE_OF_CHANGE = "DELETE FROM nonce_requests WHERE host = %s AND change_id = %s"
# A decision is repeated within minutes, so only the last day is searched.
DECISION = (
    "SELECT JSON_VALUE(detail, '$.message') AS message, JSON_VALUE(detail, '$.apart') AS apart FROM operator_audit "
    "WHERE host = %s AND created_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action = %s "
    "AND JSON_VALUE(detail, '$.decision') = %s LIMIT 1"
)

# One day: longer than a signature is valid.
USED_NONCE = (
    "SELECT 1 FROM operator_audit WHERE host = %s AND created_at > UTC_TIMESTAMP(6) - INTERVAL 1 DAY AND action = %s "
    "AND JSON_VALUE(detail, '$.nonce') = %s LIMIT 1"
)

# OldHost called it a replay, so another writer has used the nonce: a later expected nonce must not prove that it was
# applied (I2).
UNCOUNT_FIRST_SEND = (
    f"UPDATE nonce_requests SET sends = 0, answer = '{CALLED_A_REPLAY}' "
    "WHERE host = %s AND change_id = %s AND status = 'SENT' AND sends = 1 AND epoch <= %s"
)

# ------------------------------------------------------------------------------------------------------- resolving

# The first opening after it says up to which id (`statements.ACCEPT_LOSSES`).
NEW_EPOCH = (
    "UPDATE nonce_ledger SET epoch = %s, resolved_epoch = %s, losses_accepted_at = UTC_TIMESTAMP(6), "
    "losses_accepted_id = NULL WHERE host = %s"
)
END_HALT = (
    "UPDATE nonce_ledger SET halted = NULL, halted_expected_nonce = NULL, resolve_mode = NULL, count_fell_at = NULL, "
    "updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
AWAITS_COUNT = "SELECT 1 FROM nonce_ledger WHERE host = %s AND halted IS NOT NULL AND last_applied_nonce IS NOT NULL"
ADD_REASON = "UPDATE nonce_ledger SET halted = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
# An operator has decided: what an answer said of these nonces before is not held against OldHost any more.
FORGET_SAID = "UPDATE nonce_requests SET said_used = 0 WHERE host = %s AND status = 'SENT' AND said_used = 1"
KEEP_DECISION = "UPDATE nonce_ledger SET resolve_mode = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
COUNT_FROM = (
    "UPDATE nonce_ledger SET last_applied_nonce = %s, next_nonce = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
# How many rows there are from nonce `expected` on.
COUNT_ROWS_FROM = "SELECT COUNT(*) FROM nonce_requests WHERE host = %s AND nonce >= %s"
_REOPEN_FROM = (
    f"{AT_ONCE}UPDATE outbox_events o "
    "JOIN nonce_requests r ON r.change_id = o.id AND r.host = o.host AND o.nonce = r.nonce "
    "SET o.outcome = NULL, o.processed_at = NULL, o.nonce = NULL, o.error = NULL, o.unproven = 0, "
    "o.fate_sequence = NULL{also} "
    "WHERE r.host = %s AND r.nonce >= %s AND o.outcome IN ('APPLIED', 'DEAD')"
)
REOPEN_FROM = _REOPEN_FROM.format(also="")
# The relay hands them over as the writer has room.
RELAY_AGAIN_FROM = _REOPEN_FROM.format(also=", o.relayed_at = NULL")
FORGET_APPLIED_FROM = "DELETE FROM applied_states WHERE host = %s AND nonce >= %s"
# OldHost had these states and lost them: no change counts as equal to what it has now, and a resync sends them again.
# Their nonces will be used again, so each gets a nonce lower than all that follow.
FORGET_STATES_FROM = "UPDATE applied_states SET payload_hash = '', nonce = %s WHERE host = %s AND nonce >= %s"
SENT_AGAIN_FROM = (
    "UPDATE nonce_requests SET status = 'SENT', sends = 0, completed_at = NULL, said_status = NULL, "
    "said_send = NULL, said_used = 0, refused = 0, "
    "answer = 'to be sent again by an operator''s decision', sent_at = COALESCE(sent_at, UTC_TIMESTAMP(6)) "
    "WHERE host = %s AND nonce >= %s"
)
ARCHIVE_FROM = f"{ARCHIVE} nonce >= %s"
DELETE_FROM = "DELETE FROM nonce_requests WHERE host = %s AND nonce >= %s"
# For keys with an operation in doubt below `expected`: OldHost's state is unknown, so no change counts as equal to it.
FORGET_STATES_IN_DOUBT = (
    "UPDATE applied_states SET payload_hash = '' WHERE host = %s AND (entity_type, entity_id, event_type) IN "
    "(SELECT o.entity_type, o.entity_id, o.event_type FROM nonce_requests r JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = %s AND r.status = 'SENT' AND r.nonce < %s)"
)
# In doubt below `expected`; `sends` 0: not applied, as far as we can know. One exception: an operation that was called
# a replay at its first send, with no nonce used beyond it, may have been delivered twice. `adopt` decides that it was.
_DOUBTS = (
    "status = 'SENT' AND nonce < %s AND sends <= %s "
    f"AND NOT (nonce = %s AND COALESCE(answer, '') = '{CALLED_A_REPLAY}')"
)
ARCHIVE_DOUBTS = f"{ARCHIVE} {_DOUBTS}"
# Marked but never written, because the operation before it was not answered.
RELEASE_UNWRITTEN_FROM = "DELETE FROM nonce_requests WHERE host = %s AND nonce >= %s AND status = 'SENT' AND sends = 0"
DELETE_DOUBTS = f"DELETE FROM nonce_requests WHERE host = %s AND {_DOUBTS}"
