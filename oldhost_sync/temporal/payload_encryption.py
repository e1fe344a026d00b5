"""Encrypts what Temporal stores with AES-256-GCM; each payload names the key that can decrypt it.

The first key encrypts, every key decrypts. So a key can be changed without downtime: add the new one at the end
everywhere, then put it first, and remove the old one when no history holds payloads that it encrypted. Payloads that
are not encrypted are read as they are: older histories, and signals from applications without our codec.

A payload under a missing key raises an error: ignoring it would drop signals, and the task is retried until the key is
there. A payload that names one of our keys but was not encrypted with it is invalid, and passes through unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from oldhost_sync.credentials import EncryptionKey

ENCODING = b"binary/encrypted"
_KEY_ID = "encryption-key-id"
# The length that GCM requires. They are random, so two are equal after about 2^32 payloads of one key: decades.
_NONCE_BYTES = 12


class KeyMissing(Exception):  # noqa: N818 - says what happened
    """The operator must add the key to SYNC_TEMPORAL_KEYS; then a retry succeeds."""


class EncryptPayloads(PayloadCodec):
    """Encrypts every payload; without keys it encrypts nothing, but still raises KeyMissing for encrypted payloads."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self._keys = keys
        self._known: tuple[EncryptionKey, ...] = ()
        self._ciphers: dict[str, AESGCM] = {}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        self._look()
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises KeyMissing."""
        self._look()
        return [self._decrypt(payload) for payload in payloads]

    def _look(self) -> None:
        """The keys may be a file's, which can change."""
        known = tuple(self._keys)
        if known != self._known:
            self._known = known
            self._ciphers = {key.key_id: AESGCM(key.secret) for key in known}

    def _encrypt(self, payload: Payload) -> Payload:
        if not self._known:
            return payload
        newest = self._known[0].key_id
        nonce, key_id = os.urandom(_NONCE_BYTES), newest.encode()
        sealed = self._ciphers[newest].encrypt(nonce, payload.SerializeToString(), key_id)
        return Payload(metadata={"encoding": ENCODING, _KEY_ID: key_id}, data=nonce + sealed)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        key_id = payload.metadata.get(_KEY_ID, b"")
        cipher = self._ciphers.get(key_id.decode(errors="backslashreplace"))
        if cipher is None:
            raise KeyMissing(
                f"Temporal holds a payload that the key {key_id.decode(errors='backslashreplace')} encrypted, but "
                "SYNC_TEMPORAL_KEYS lacks this key: add it after the first"
            )
        try:
            return Payload.FromString(cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], key_id))
        except (InvalidTag, ValueError, DecodeError):
            return payload
