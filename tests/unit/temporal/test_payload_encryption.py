"""What Temporal stores, encrypted: read back by every key that is known, and nothing is read that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError

from oldhost_sync.credentials import EncryptionKey, parse_encryption_keys
from oldhost_sync.temporal.client import COMPRESS_ABOVE_BYTES, CompressThenEncrypt, data_converter
from oldhost_sync.temporal.payload_encryption import ENCODING, EncryptPayloads, KeyMissing

OLD, NEW = EncryptionKey("2026", bytes(range(32))), EncryptionKey("2027", bytes(range(1, 33)))
SECRET = Payload(metadata={"encoding": b"json/plain"}, data=b'{"operator": "anna", "reason": "the owner waits"}')


def encoded(codec: PayloadCodec, payload: Payload = SECRET) -> Payload:
    return asyncio.run(codec.encode([payload]))[0]


def decoded(codec: PayloadCodec, payload: Payload) -> Payload:
    return asyncio.run(codec.decode([payload]))[0]


def test_an_encrypted_payload_shows_nothing_but_its_key_s_name_and_comes_back_as_it_was() -> None:
    codec = EncryptPayloads([NEW])
    sealed = encoded(codec)
    assert dict(sealed.metadata) == {"encoding": ENCODING, "encryption-key-id": b"2027"}
    for part in (b"anna", b"owner", b"json"):
        assert part not in sealed.SerializeToString()
    assert decoded(codec, sealed) == SECRET


def test_the_same_payload_is_never_the_same_twice() -> None:
    codec = EncryptPayloads([NEW])
    assert encoded(codec).data != encoded(codec).data


@pytest.mark.parametrize("keys", [[NEW], [NEW, OLD], [OLD, NEW]])
def test_the_first_key_encrypts_and_every_key_decrypts(keys: Sequence[EncryptionKey]) -> None:
    codec = EncryptPayloads(keys)
    assert encoded(codec).metadata["encryption-key-id"] == keys[0].key_id.encode()
    for key in keys:
        assert decoded(codec, encoded(EncryptPayloads([key]))) == SECRET


@pytest.mark.parametrize("keys", [[], [NEW]])
def test_a_payload_under_a_missing_key_is_not_passed_on(keys: Sequence[EncryptionKey]) -> None:
    with pytest.raises(KeyMissing, match="the key 2026 encrypted, but SYNC_TEMPORAL_KEYS lacks this key"):
        decoded(EncryptPayloads(keys), encoded(EncryptPayloads([OLD])))


def test_what_is_not_encrypted_is_read_as_it_is() -> None:
    assert decoded(EncryptPayloads([NEW]), SECRET) == SECRET
    assert encoded(EncryptPayloads([])) == SECRET


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 100])
def test_garbage_under_our_key_s_name_passes_through(data: bytes) -> None:
    payload = Payload(metadata={"encoding": ENCODING, "encryption-key-id": b"2027"}, data=data)
    assert decoded(EncryptPayloads([NEW]), payload) == payload


def test_a_payload_can_t_be_given_another_key_s_name() -> None:
    sealed = encoded(EncryptPayloads([OLD]))
    sealed.metadata["encryption-key-id"] = b"2027"
    assert decoded(EncryptPayloads([NEW, OLD]), sealed) == sealed


def test_a_large_payload_is_compressed_before_it_is_encrypted() -> None:
    large = Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"x" * 10 * COMPRESS_ABOVE_BYTES + b'"')
    codec = CompressThenEncrypt([NEW])
    sealed = encoded(codec, large)
    assert len(sealed.data) < len(large.data) / 100
    assert decoded(codec, sealed) == large


def test_the_texts_of_failures_are_encrypted_too() -> None:
    converter, failure = data_converter([NEW]), Failure()
    asyncio.run(converter.encode_failure(ApplicationError("'pause' by anna waits"), failure))
    assert b"anna" not in failure.SerializeToString()
    assert str(asyncio.run(converter.decode_failure(failure))) == "'pause' by anna waits"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hunter2", "key 1 must be id=key"),
        (f"{OLD.entry},2027=aGk=", "key 2 must be id=key"),
        (f"{OLD.entry},{OLD.entry}", "key '2026' is given twice"),
    ],
)
def test_a_wrong_key_is_told_by_its_place(text: str, told: str) -> None:
    assert parse_encryption_keys(f"{NEW.entry}, {OLD.entry}") == (NEW, OLD)
    with pytest.raises(ValueError, match=told) as error:
        parse_encryption_keys(text)
    assert "hunter2" not in str(error.value)
