"""The store of KV with tokens for keys, against a dict of prefixes."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phloem import ConfigError, KVStore, RequestError

from .store_process import Store, short_folder

SHAPE = (2, 2, 3)
BLOCK = 4
SMALL: dict[str, Any] = {"token_shape": SHAPE, "dtype": torch.float32, "block_size": BLOCK, "max_bytes": 64 << 20}
TOKENS = st.lists(st.integers(0, 1), max_size=21)  # so that many begin alike


def kv_of(tokens: list[int], namespace: str = "", dtype: torch.dtype = torch.float32) -> Tensor:
    """A token's KV depends on all tokens up to it."""
    rows = [
        torch.tensor([Random(f"{namespace}{tokens[: end + 1]}{index}").randrange(100) for index in range(12)])
        for end in range(len(tokens))
    ]
    return torch.stack(rows).view(-1, *SHAPE).to(dtype) if rows else torch.empty(0, *SHAPE, dtype=dtype)


@pytest.fixture(scope="module", params=["memory", "folder", "redis"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    with ExitStack() as stack:
        if request.param == "memory":
            yield None
        elif request.param == "folder":
            yield str(tmp_path_factory.mktemp("blocks"))
        else:
            if importlib.util.find_spec("redis") is None:
                pytest.skip("redis (phloem[shared]) is not installed")
            store = Store(stack.enter_context(short_folder()))
            stack.callback(store.kill)
            yield store.url


@settings(max_examples=30)
@given(calls=st.lists(st.tuples(st.booleans(), st.sampled_from(["", "salt"]), TOKENS), max_size=12))
def test_it_finds_the_longest_prefix_of_whole_blocks_of_its_namespace(
    place: str | None, calls: list[tuple[bool, str, list[int]]]
) -> None:
    known: dict[str, set[tuple[int, ...]]] = {"": set(), "salt": set()}
    with KVStore(place, model=str(uuid4()), namespace="", **SMALL) as store:
        views = {"": store, "salt": store.within("salt")}
        for is_put, namespace, tokens in calls:
            blocks = [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
            there = next((n for n, prefix in enumerate(blocks) if prefix not in known[namespace]), len(blocks))
            if is_put:
                new = views[namespace].put(tokens, kv_of(tokens, namespace))
                assert new == BLOCK * (len(blocks) - there)
                known[namespace].update(blocks)
            else:
                num_tokens, kv = views[namespace].get_closest(tokens)
                assert num_tokens == BLOCK * there and kv.shape == (num_tokens, *SHAPE)
                assert torch.equal(kv, kv_of(tokens[:num_tokens], namespace))
        assert store.num_faults == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.float8_e4m3fn])
def test_numbers_of_every_type_come_back_bit_for_bit(place: str | None, dtype: torch.dtype) -> None:
    tokens = list(range(9))
    kv = kv_of(tokens).to(dtype)
    scattered = torch.stack([kv.view(torch.uint8), kv.view(torch.uint8)], 1)[:, 0].view(dtype)  # not contiguous
    with KVStore(place, model="m", namespace="", **{**SMALL, "dtype": dtype}) as store:
        assert store.put(tokens, scattered) == 8
        num_tokens, found = store.get_closest([*range(8), 77])
        assert (
            num_tokens == 8 and found.dtype == dtype and torch.equal(found.view(torch.uint8), kv[:8].view(torch.uint8))
        )


def test_another_model_type_shape_or_block_size_finds_nothing(tmp_path: Path) -> None:
    tokens = list(range(8))
    with KVStore(tmp_path / "blocks", model="one", namespace="", **SMALL) as store:
        store.put(tokens, kv_of(tokens))
    others: list[dict[str, Any]] = [
        {"model": "two"},
        {"namespace": "salt"},
        {"dtype": torch.int32},
        {"token_shape": (2, 3, 2)},
        {"block_size": 2},
    ]
    for other in others:
        with KVStore(tmp_path / "blocks", **{"model": "one", "namespace": "", **SMALL, **other}) as store:
            assert store.get_closest(tokens)[0] == 0, other
    with KVStore(tmp_path / "blocks", model="one", namespace="", **SMALL) as store:
        assert store.get_closest(tokens)[0] == 8


@pytest.mark.parametrize(
    ("tokens", "kv", "error"),
    [
        (
            [1, 2],
            torch.zeros(3, *SHAPE),
            r"kv: expected torch.float32 \[2, 2, 2, 3\] for 2 tokens, got .*\[3, 2, 2, 3\]",
        ),
        ([1, 2], torch.zeros(2, *SHAPE, dtype=torch.float64), "got torch.float64"),
        ([1, 2**40], torch.zeros(2, *SHAPE), "tokens: expected whole numbers of 32 bits"),
        ([1, 0.5], torch.zeros(2, *SHAPE), "tokens: expected whole numbers of 32 bits"),
    ],
)
def test_wrong_values_are_refused(tokens: Any, kv: Tensor, error: str) -> None:
    with KVStore(None, model="m", namespace="", **SMALL) as store, pytest.raises(RequestError, match=error):
        store.put(tokens, kv)


@pytest.mark.parametrize(
    ("place", "fields", "error"),
    [
        ("http://x", {}, "place: 'http://x': expected redis://HOST:PORT"),
        ("/proc/none", {}, "place: /proc/none cannot be written to"),
        ("/etc/hostname", {}, "place: /etc/hostname is a file and no folder"),
        ("a\0b", {}, "place: .* no file can have this name"),
        (None, {"max_bytes": 100}, "max_bytes: 100 does not hold two blocks of 192 bytes"),
        (None, {"block_size": 0}, "block_size 0"),
        (None, {"token_shape": ()}, "token_shape"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(place: str | None, fields: dict[str, Any], error: str) -> None:
    if importlib.util.find_spec("redis") is None and place == "http://x":
        pytest.skip("redis (phloem[shared]) is not installed")
    with pytest.raises(ConfigError, match=error):
        KVStore(place, **{"model": "m", "namespace": "", **SMALL, **fields})


def test_a_store_that_comes_and_goes_costs_no_error() -> None:
    if importlib.util.find_spec("redis") is None or shutil.which("redis-server") is None:
        pytest.skip("there is no store")
    tokens = list(range(8))
    with short_folder() as folder:
        server = Store(folder)
        try:
            with KVStore(server.url, model="m", namespace="", **SMALL) as store:
                assert store.put(tokens, kv_of(tokens)) == 8 == store.get_closest(tokens)[0]
                server.kill()
                num_tokens, kv = store.get_closest(tokens)
                assert num_tokens == 0 and kv.shape == (0, *SHAPE)
                assert store.put(tokens, kv_of(tokens)) == 0 and store.num_faults >= 1
        finally:
            server.kill()
