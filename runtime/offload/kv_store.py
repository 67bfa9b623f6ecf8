"""KV of token prefixes outside of the engine that computed it, for phloem's tiers and other engines' KV.

::

    store = KVStore("redis://10.0.0.5/0", model="llama-3-8b bf16", token_shape=(32, 2, 8, 128), dtype=torch.bfloat16,
                    namespace="")
    store.put(token_ids, kv)                             # kv[i]: keys and values of token i in all layers
    num_tokens, kv = store.get_closest(token_ids)        # of the longest prefix that is there

Blocks of `block_size` tokens are kept under keys that stand for model, namespace and all tokens up to their ends
(`block_key`), in host memory, a folder or a store that machines share, by the tiers that engines use. So a prefix
is found block by block, and equal beginnings are kept once.

What cannot be read is a miss, and what cannot be written is left out: a store that is gone, slow or full, and entries
that are damaged, cut, or another model's, cost time and never an error or wrong KV. Host memory has no checksums.

Knows tokens and bytes; of the numbers in KV it knows the type. Both calls wait for the place where blocks are kept. Any
thread may call.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from ...errors import ConfigError, RequestError
from ...radix import pack
from ..path_fault import path_fault
from . import DiskTier, MemoryTier, Tier, open_folder
from .block_key import BlockKey, extend_keys, root_of
from .stores import open_store

FORM = 1  # of what is kept; another one is not read


class KVStore:
    """A store of KV, as one model and one namespace see it.

    Args:
        place: where blocks are kept: URL of a store that machines share (`redis://[:password@]host:port/number`,
            `rediss://…`, `unix://…`; needs `pip install 'phloem[shared]'`), a folder, or None: memory of this process.
        model: text that differs wherever KV differs: weights, number formats, and what else computes it. What was put
            under another one is not found.
        token_shape: shape of one token's KV, as (layers, 2, heads, head size); any shape will do.
        dtype: of KV.
        namespace: what is put in one namespace is found in that one only (tenants, salts, adapters).
        block_size: tokens per block; what is left of a prefix after its last whole block is not kept.
        max_bytes: what a folder or the memory may take; a shared store bounds itself.
        ttl: seconds after which a shared store forgets a block that was not used; None: it decides itself.

    Raises:
        ConfigError: the place cannot be used, or a block does not fit in.
    """

    def __init__(
        self,
        place: str | Path | None,
        *,
        model: str,
        token_shape: Sequence[int],
        dtype: torch.dtype,
        namespace: str,
        block_size: int = 16,
        max_bytes: int = 16 << 30,
        ttl: float | None = None,
    ) -> None:
        self._shape = tuple(token_shape)
        for name, value, kind in (("model", model, str), ("namespace", namespace, str), ("dtype", dtype, torch.dtype)):
            _check_kind(name, value, kind)
        for number in (block_size, max_bytes, *self._shape):
            _check_kind("block_size, max_bytes and token_shape", number, int)
        if block_size < 1 or not self._shape or min(self._shape) < 1:
            raise ConfigError(f"block_size {block_size}, token_shape {self._shape}: all numbers must be at least 1")
        self._dtype = dtype
        self._block_size = block_size
        self._block_bytes = block_size * math.prod(self._shape) * dtype.itemsize
        if max_bytes < 2 * self._block_bytes:
            raise ConfigError(f"max_bytes: {max_bytes} does not hold two blocks of {self._block_bytes} bytes; raise it")
        parts = ["KVStore", FORM, model, self._shape, str(dtype), block_size]
        self._fingerprint = hashlib.sha256(json.dumps(parts).encode()).digest()
        self._root = root_of(self._fingerprint, namespace)
        self._tier = self._open(place, max_bytes, ttl)
        self._tier.begin()
        self._writing = threading.Lock()

    def within(self, namespace: str) -> KVStore:
        """The same store, as another namespace sees it; both end with either."""
        _check_kind("namespace", namespace, str)
        other = copy.copy(self)
        other._root = root_of(self._fingerprint, namespace)
        return other

    @property
    def num_faults(self) -> int:
        """How often reading or writing has failed, or an entry was not what its key says."""
        return self._tier.num_faults

    def put(self, tokens: Iterable[int], kv: Tensor) -> int:
        """Keeps copies of the whole blocks of a prefix; returns how many tokens were not there and are now.

        kv: `[len(tokens), *token_shape]`, of the store's dtype, on any device.

        Raises:
            RequestError: a token is no int32, or `kv` has another shape or type.
        """
        keys, num_tokens = self._keys(tokens)
        if not isinstance(kv, Tensor) or kv.layout is not torch.strided or kv.is_meta:
            raise RequestError(f"kv: expected a tensor with numbers in it, not {type(kv).__name__}")
        if kv.shape != (num_tokens, *self._shape) or kv.dtype != self._dtype:
            raise RequestError(
                f"kv: expected {self._dtype} {[num_tokens, *self._shape]} for {num_tokens} tokens, got {kv.dtype}"
                f" {list(kv.shape)}"
            )
        with self._writing:
            there = self._tier.count(keys)
            new = kv.detach()[there * self._block_size : len(keys) * self._block_size].to("cpu").contiguous()
            rows = new.view(torch.uint8).view(len(keys) - there, self._block_bytes).numpy()
            return self._tier.put_blocks(keys[there:], rows) * self._block_size

    def get_closest(self, tokens: Iterable[int]) -> tuple[int, Tensor]:
        """The KV of the longest prefix of `tokens` that is there, in whole blocks.

        Returns how many tokens that are, and their KV, `[that many, *token_shape]` on the CPU; (0, an empty tensor) if
        there is none. That may be all of them: an engine computes at least the last one itself, whose logits it needs.

        Raises:
            RequestError: a token is no int32.
        """
        keys, _ = self._keys(tokens)
        keys = keys[: self._tier.count(keys)]
        rows = np.empty((len(keys), self._block_bytes), np.uint8)
        num_read = self._tier.read_blocks(keys, rows)
        self._tier.touch(keys[:num_read])
        num_tokens = num_read * self._block_size
        kv = torch.from_numpy(rows[:num_read].reshape(-1)).view(self._dtype)
        return num_tokens, kv.view(num_tokens, *self._shape)

    def close(self) -> None:
        """Ends its connections. Nothing is asked of it afterwards."""
        self._tier.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keys(self, tokens: Iterable[int]) -> tuple[list[BlockKey], int]:
        """The keys of all whole blocks, and how many tokens there are."""
        try:
            packed = pack(tokens)
        except (OverflowError, TypeError) as error:
            raise RequestError(f"tokens: expected whole numbers of 32 bits ({error})") from error
        return extend_keys(self._root, True, packed, 4 * self._block_size), len(packed) // 4

    def _open(self, place: str | Path | None, max_bytes: int, ttl: float | None) -> Tier:
        if place is None:
            return MemoryTier(np.empty((max_bytes // self._block_bytes, self._block_bytes), np.uint8))
        try:
            if isinstance(place, str) and "://" in place:
                return open_store(place)(self._fingerprint, self._block_bytes, ttl=ttl)
            folder = Path(place).expanduser()
            fault = path_fault(folder)
            if fault is not None:
                raise ConfigError(f"{str(place)[:200]!r}: {fault}; choose another folder")
            return DiskTier(open_folder(folder), max_bytes, self._fingerprint, self._block_bytes)
        except ConfigError as error:
            text = str(error).removeprefix("disk_cache: ").removeprefix("shared_cache: ")
            raise ConfigError(f"place: {text}") from error


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {str: "a text", int: "whole numbers"}.get(kind, "a torch.dtype")
        raise ConfigError(f"{name}: expected {expected}, got {value!r:.100}")
