"""What Temporal stores, encrypted by AES-256-GCM: a payload says by the key's name who can read it.

The first key encrypts, every key decrypts, so a key is changed without a stop: the new one is added at the end
everywhere, then put first, and the old one is taken away when no history holds what it encrypted. What is not encrypted
is read as it is: histories from before, and applications that signal without our codec.

A payload under a key that is not here raises: reading on would drop signals, and the task is tried again until the key
is there. One that names a key of ours and was not made by it is somebody's garbage, and passes through as it is.
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
# What GCM asks for. Made by chance, two are alike after some 2^32 payloads of one key: decades.
_NONCE_BYTES = 12


class KeyMissing(Exception):  # noqa: N818 - says what happened
    """The operator's fault; again, when SYNC_TEMPORAL_KEYS has the key."""


class EncryptPayloads(PayloadCodec):
    """Encrypts every payload; without keys it encrypts nothing, and still tells what it can't read."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self._ciphers = {key.key_id: AESGCM(key.secret) for key in keys}
        self._newest = keys[0].key_id if keys else None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises KeyMissing."""
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        if self._newest is None:
            return payload
        nonce, key_id = os.urandom(_NONCE_BYTES), self._newest.encode()
        sealed = self._ciphers[self._newest].encrypt(nonce, payload.SerializeToString(), key_id)
        return Payload(metadata={"encoding": ENCODING, _KEY_ID: key_id}, data=nonce + sealed)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        key_id = payload.metadata.get(_KEY_ID, b"")
        cipher = self._ciphers.get(key_id.decode(errors="backslashreplace"))
        if cipher is None:
            raise KeyMissing(
                f"Temporal holds something that the key {key_id.decode(errors='backslashreplace')} encrypted, and "
                "SYNC_TEMPORAL_KEYS lacks it: add it behind the first"
            )
        try:
            return Payload.FromString(cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], key_id))
        except (InvalidTag, ValueError, DecodeError):
            return payload
