"""The API's signature of an operator's act. Any client of Temporal can send an act in any name, but not sign it.

HMAC-SHA256 with a key that the API and the workers share. It covers the whole act, the host, the channel, the time and
a value used once, so it is valid for no other act, host or time, and only once. The API makes it, and it is checked
where the act is recorded; the workflow only carries it.
"""

# Annotations are values here, not text; see workflows/messages.py.
import hashlib
import hmac
import json
from collections.abc import Sequence

from oldhost_sync.policy.actor import Actor, Channel
from oldhost_sync.policy.operator_act import ActSignature, OperatorAct

# Allows for clocks that differ, and for an act that waits while the database is down. An older one may be replayed.
VALID_MS = 10 * 60 * 1000
_SIGNED_CHANNELS = frozenset({Channel.API, Channel.CONSOLE})
_PURPOSE = "oldhost-sync operator's act 1"


def sign(act: OperatorAct, key: str, *, now_ms: int, nonce: str) -> ActSignature:
    """The signature of `act` with `key`; `nonce`: text that was never used before."""
    unsigned = ActSignature(nonce, now_ms)
    return ActSignature(nonce, now_ms, _digest(act, unsigned, key))


def actor_of(act: OperatorAct, keys: Sequence[str], *, now_ms: int) -> Actor:
    """Who acts, judged by the signature alone. Whether its nonce was used before, only the database can tell."""
    if act.action == "halt":  # only the writer itself halts
        return Actor(act.operator, Channel.WRITER, verified=None)
    doubt = _doubt(act, keys, now_ms)
    if not doubt:
        return Actor(act.operator, Channel(act.channel), verified=True)
    said = Channel.COMMAND_LINE if act.channel == Channel.COMMAND_LINE else Channel.TEMPORAL
    return Actor(act.operator, said, verified=False, doubt=doubt)


def _doubt(act: OperatorAct, keys: Sequence[str], now_ms: int) -> str:
    """Why the name is not verified; empty when it is."""
    signature = act.signature
    if signature is None or not signature.digest:
        return "not signed"
    if not keys:
        return "the worker has no key to check the signature (SYNC_ACT_KEYS)"
    given = signature.digest.encode(errors="backslashreplace")  # untrusted text
    fits = [hmac.compare_digest(_digest(act, signature, key).encode(), given) for key in keys]
    if not any(fits) or act.channel not in _SIGNED_CHANNELS:
        return "the signature does not fit"
    if abs(now_ms - signature.signed_at_ms) > VALID_MS:
        return f"signed more than {VALID_MS // 60_000} minutes ago, or the clocks differ"
    return ""


def _digest(act: OperatorAct, signature: ActSignature, key: str) -> str:
    bound = [
        *(_PURPOSE, act.channel, act.host, act.action, act.operator, act.reason),
        *(act.change_id, act.mode, act.entity, act.epoch, signature.signed_at_ms, signature.nonce),
    ]
    return hmac.new(key.encode(), json.dumps(bound).encode(), hashlib.sha256).hexdigest()
