"""One block's KV as a file: a header of fixed size, then the bytes as they lie in memory.

::

    magic 8 | version 4 | header size 4 | bytes of KV 8 | fingerprint 32 | key 32 | parent 32 | zeros | checksum 32
    KV

Little-endian; the header is 256 bytes. The checksum (HMAC-SHA256, RFC 2104, under the folder's secret) covers
everything before it and the KV, so a file is unreadable if a byte of it has changed anywhere, or if it was written by
a process that does not know the secret. The key in the header is that of the file's name, so a file that was copied or
renamed is not what it claims to be. Nothing is parsed, and nothing is ever executed: all that is read is compared with
what is expected, byte for byte.

HMAC costs what SHA-256 alone does (processors have instructions for it); keyed BLAKE2b took twice as long.
"""

from __future__ import annotations

import hmac
import os
import struct
from pathlib import Path

import numpy as np

from .block_key import BlockKey
from .sharing import PRIVATE, Sharing
from .tier import Row

MAGIC = b"PHLOEMKV"
VERSION = 2  # 1 had a checksum without a secret
HEADER_BYTES = 256
_FIELDS = struct.Struct("<8sIIQ32s32s32s")
_CHECKSUM_BYTES = 32


class CorruptBlock(Exception):
    """The file is not what its name says."""


def write_block(
    path: Path, secret: bytes, fingerprint: bytes, key: BlockKey, block: Row, *, sharing: Sharing = PRIVATE
) -> None:
    """Writes a new file; OSError if that cannot be done, and then what is there is no block."""
    block = np.ascontiguousarray(block)
    left = [memoryview(head_of(secret, fingerprint, key, block)), block.data.cast("B")]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        sharing.apply(descriptor)
        while left:
            num_written = os.writev(descriptor, left)
            while left and num_written >= len(left[0]):
                num_written -= len(left.pop(0))
            if left:
                left[0] = left[0][num_written:]
    finally:
        os.close(descriptor)


def read_block(path: Path, secret: bytes, fingerprint: bytes, key: BlockKey, out: Row) -> None:
    """Reads a block into `out`, which is of its size.

    Raises:
        OSError: there is no such file, or it cannot be read.
        CorruptBlock: it is not this block's, or not whole. `out` has been written to.
    """
    payload = out.data.cast("B")
    header = bytearray(HEADER_BYTES)
    # non-blocking: if a pipe was put there, opening it must not wait for the other end
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if os.fstat(descriptor).st_size != HEADER_BYTES + len(payload):
            raise CorruptBlock("it is of another size")
        num_read = os.readv(descriptor, [header, payload])
        while num_read < HEADER_BYTES + len(payload):
            if num_read < HEADER_BYTES:
                raise CorruptBlock("it is not whole")
            more = os.readv(descriptor, [payload[num_read - HEADER_BYTES :]])
            if not more:
                raise CorruptBlock("it is not whole")
            num_read += more
    finally:
        os.close(descriptor)
    _check(bytes(header), payload, secret, fingerprint, key)


def head_of(secret: bytes, fingerprint: bytes, key: BlockKey, block: Row) -> bytes:
    """The header of a block that is kept elsewhere than in a file: `HEADER_BYTES`, with the checksum."""
    payload = np.ascontiguousarray(block).data.cast("B")
    head = _head(fingerprint, key, len(payload))
    return head + _checksum(secret, head, payload)


def check_block(value: bytes, secret: bytes, fingerprint: bytes, key: BlockKey, num_bytes: int) -> None:
    """Checks that a header and what follows it are a block of `num_bytes` bytes.

    Raises:
        CorruptBlock: it is not this block's, or not whole.
    """
    if len(value) != HEADER_BYTES + num_bytes:
        raise CorruptBlock("it is of another size")
    _check(value[:HEADER_BYTES], memoryview(value)[HEADER_BYTES:], secret, fingerprint, key)


def _check(header: bytes, payload: memoryview, secret: bytes, fingerprint: bytes, key: BlockKey) -> None:
    head, checksum = header[:-_CHECKSUM_BYTES], header[-_CHECKSUM_BYTES:]
    if head != _head(fingerprint, key, len(payload)):
        raise CorruptBlock("its header is of another block, model or version")
    if not hmac.compare_digest(checksum, _checksum(secret, head, payload)):
        raise CorruptBlock("its checksum is wrong")


def _head(fingerprint: bytes, key: BlockKey, num_bytes: int) -> bytes:
    """All of the header but the checksum."""
    fields = _FIELDS.pack(MAGIC, VERSION, HEADER_BYTES, num_bytes, fingerprint, key.digest, key.parent)
    return fields.ljust(HEADER_BYTES - _CHECKSUM_BYTES, b"\0")


def _checksum(secret: bytes, head: bytes, payload: memoryview) -> bytes:
    checksum = hmac.new(secret, head, "sha256")
    checksum.update(payload)
    return checksum.digest()
