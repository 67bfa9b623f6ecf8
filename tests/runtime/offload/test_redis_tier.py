"""KV in a store that machines share: a real one, and all that can happen to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

redis: Any = pytest.importorskip("redis", reason="redis (phloem[shared]) is not installed")

from phloem.errors import ConfigError  # noqa: E402
from phloem.runtime.config import EngineConfig  # noqa: E402
from phloem.runtime.engine.engine import Engine  # noqa: E402
from phloem.runtime.execute.loading import LoadedModel, load  # noqa: E402
from phloem.runtime.offload.block_key import BlockKey, extend_keys, root_of  # noqa: E402
from phloem.runtime.offload.redis_tier import PREFIX, RedisTier, connect  # noqa: E402
from phloem.runtime.offload.stores import open_store  # noqa: E402
from phloem.runtime.request import SamplingParams  # noqa: E402

from .store_process import Store, short_folder  # noqa: E402

BLOCK_BYTES = 512
MODEL, OTHER_MODEL = bytes(32), bytes([1]) * 32
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def started(folder: Path, *options: str) -> Iterator[Store]:
    store = Store(folder, *options)
    try:
        yield store
    finally:
        store.kill()


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    yield from started(folder)


@pytest.fixture
def full_store(folder: Path) -> Iterator[Store]:
    yield from started(folder, "--maxmemory", "1500kb", "--maxmemory-policy", "noeviction")


@pytest.fixture
def locked_store(folder: Path) -> Iterator[Store]:
    yield from started(folder, "--requirepass", "sesame")


@pytest.fixture(scope="module")
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


def keys_of(number: int, namespace: str = "") -> list[BlockKey]:
    return extend_keys(root_of(MODEL, namespace), True, np.arange(number, dtype=np.int32).tobytes(), 4)


def rows_of(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, (number, BLOCK_BYTES), np.uint8)


def tier_of(store: Store, fingerprint: bytes = MODEL, **options: Any) -> RedisTier:
    client, secret = connect(store.url)
    return RedisTier(client, secret, fingerprint, BLOCK_BYTES, **options)


def test_what_one_process_puts_another_reads(store: Store) -> None:
    keys, rows, told = keys_of(9), rows_of(9), []
    writer, reader = tier_of(store, changed=told.extend), tier_of(store)
    assert writer.count(keys) == 0 and all(map(writer.wants, keys)) and writer.may_have(keys[0])
    assert writer.put_blocks(keys[:7], rows[:7]) == 7 and told == [(key.digest, True) for key in keys[:7]]
    assert writer.put_blocks(keys, rows) == 2, "the others are there"
    assert not any(map(writer.wants, keys)) and writer.num_bytes == 9 * (256 + BLOCK_BYTES)
    out = np.empty_like(rows)
    assert reader.count(keys) == reader.read_blocks(keys, out) == 9 and (out == rows).all()
    assert reader.num_faults == writer.num_faults == 0
    store.client().delete(PREFIX + keys[4].digest)
    assert reader.read_blocks(keys, out) == 4 == reader.count(keys) and reader.wants(keys[4])
    for tier in (reader, writer):
        tier.close()


def test_what_is_not_what_its_key_says_is_a_miss_and_removed(store: Store) -> None:
    keys, rows, out = keys_of(6), rows_of(6), np.empty((6, BLOCK_BYTES), np.uint8)
    tier, client = tier_of(store), store.client()
    names = [PREFIX + key.digest for key in keys]
    good = []

    def fill() -> None:
        client.flushall()
        tier_of(store).put_blocks(keys, rows)
        good[:] = client.mget(names)

    rng = Random(1)
    for _ in range(20):
        fill()
        spoilt, at = bytearray(good[2]), rng.randrange(256 + BLOCK_BYTES)
        spoilt[at] ^= 1 << rng.randrange(8)
        client.set(names[2], bytes(spoilt))
        assert tier.read_blocks(keys, out) == 2 and (out[:2] == rows[:2]).all() and not client.exists(names[2])
    assert tier.num_faults == 20
    for value in (b"", good[3], good[2][:-1], good[2] + b"x", b"x" * len(good[2])):
        fill()
        client.set(names[2], value)
        assert tier.read_blocks(keys, out) == 2 and not client.exists(names[2])
    fill()
    client.delete(names[2])
    client.lpush(names[2], "a list")
    assert tier.read_blocks(keys, out) == 2
    assert tier_of(store, OTHER_MODEL).read_blocks(keys, out) == 0, "of another model"
    client.flushall()
    tier_of(store).put_blocks(keys, rows)
    secret = RedisTier(connect(store.url)[0], b"sesame", MODEL, BLOCK_BYTES)
    assert secret.read_blocks(keys, out) == 0 and secret.num_faults == 1, "of a writer without the password"


def test_a_full_store_is_left_alone_and_costs_nothing(full_store: Store) -> None:
    now = 0.0
    tier = tier_of(full_store, clock=lambda: now)
    keys = keys_of(2000)
    rows = np.zeros((len(keys), BLOCK_BYTES), np.uint8)
    kept = tier.put_blocks(keys, rows)
    assert 0 < kept < len(keys) and tier.num_faults and not tier.may_have(keys[0]) and not tier.wants(keys[-1])
    now += 60
    assert tier.read_blocks(keys[:5], rows) == 5, "it still reads"


def test_a_store_that_is_gone_is_tried_again(store: Store) -> None:
    now = 0.0
    tier, keys, rows = tier_of(store, clock=lambda: now), keys_of(3), rows_of(3)
    assert tier.put_blocks(keys, rows) == 3
    store.kill()
    assert tier.count(keys) == 0 and tier.num_faults == 1
    assert tier.read_blocks(keys, rows.copy()) == tier.put_blocks(keys, rows) == 0 and tier.num_faults == 1
    store.path.unlink(missing_ok=True)
    store.start()
    assert tier.count(keys) == 0, "not yet"
    now += 1
    assert tier.count(keys) == 0 and tier.may_have(keys[0])
    assert tier.put_blocks(keys, rows) == 3 == tier.count(keys)


def test_a_store_that_does_not_answer_is_awaited_for_a_while_and_then_left_alone(store: Store) -> None:
    now = 0.0
    tier, keys = tier_of(store, clock=lambda: now), keys_of(3)
    tier.put_blocks(keys, rows_of(3))
    os.kill(store.process.pid, signal.SIGSTOP)
    try:
        assert tier.count(keys) == 0 and tier.num_faults == 1 and not tier.may_have(keys[0])
        assert tier.count(keys) == 0 and tier.num_faults == 1, "it was not asked"
    finally:
        os.kill(store.process.pid, signal.SIGCONT)
    now += 1
    assert tier.count(keys) == 3


def test_blocks_are_forgotten_after_their_time_unless_they_are_used(store: Store) -> None:
    tier, keys, client = tier_of(store, ttl=1000.0), keys_of(2), store.client()
    tier.put_blocks(keys, rows_of(2))
    client.pexpire(PREFIX + keys[0].digest, 5000)
    client.pexpire(PREFIX + keys[1].digest, 5000)
    tier.touch(keys[:1])
    assert client.pttl(PREFIX + keys[0].digest) > 900_000 and client.pttl(PREFIX + keys[1].digest) <= 5000


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("localhost:6379", "expected redis://HOST:PORT"),
        ("http://user:secret@localhost", "'http://localhost': expected redis://"),
        ("redis://localhost:port", "write for example redis://127.0.0.1:6379/0"),
        ("", "expected redis://"),
        ("redis://", "names no host or socket; write for example redis://127.0.0.1:6379/0"),
        ("redis://:secret@/0", "names no host or socket"),
        ("rediss://:6379/0", "names no host or socket"),
        ("unix://", "names no host or socket"),
    ],
)
def test_a_wrong_url_is_refused_and_no_password_is_shown(url: str, error: str) -> None:
    with pytest.raises(ConfigError, match="shared_cache: .*" + error) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_a_password_is_asked_for_and_makes_the_checksums_secret(locked_store: Store) -> None:
    for url in (locked_store.url, f"unix://:wrong@{locked_store.path}"):
        with pytest.raises(ConfigError, match=r"shared_cache: unix:///tmp.*write the password into the URL") as caught:
            connect(url)
        assert "wrong@" not in str(caught.value)
    _, secret = connect(f"unix://:sesame@{locked_store.path}")
    assert secret == b"sesame"


def test_a_store_that_is_not_there_yet_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    tier = RedisTier(*connect(f"unix://{folder}/none"), MODEL, BLOCK_BYTES)
    assert "does not answer" in caplog.text and tier.count(keys_of(1)) == 0


def answers(nano: LoadedModel, prompts: list[list[int]], namespace: str = "", **settings: Any) -> tuple[list[Any], Any]:
    """What an engine of its own says, and its statistics."""
    with Engine.from_loaded(EngineConfig(device="cpu", num_blocks=256, **settings), nano) as engine:
        said = [engine.generate(prompt, GREEDY, namespace=namespace).token_ids for prompt in prompts]
        tiers = engine.prefix_cache.tiers
        assert tiers is None or tiers.settle(30)
        return said, engine.statistics()


def test_an_engine_loads_what_another_has_computed_and_says_the_same(store: Store, nano: LoadedModel) -> None:
    rng = Random(3)
    shared = [rng.randrange(300, 1000) for _ in range(400)]
    prompts = [shared + [rng.randrange(300, 1000) for _ in range(30)] for _ in range(3)]
    truth, _ = answers(nano, prompts, prefix_cache=False)
    first, written = answers(nano, prompts, shared_cache=store.url)
    second, read = answers(nano, prompts, shared_cache=store.url)
    assert first == second == truth
    assert written.loaded_tokens == 0 and written.num_stored_blocks >= 25 and written.tier_bytes["shared"] > 0
    assert read.loaded_tokens >= 400 and read.num_tier_faults == 0
    salted, none = answers(nano, prompts, "salt", shared_cache=store.url)
    assert salted == truth and none.loaded_tokens == 0, "a namespace has its own blocks"


def test_whatever_happens_to_the_store_answers_are_right(store: Store, nano: LoadedModel) -> None:
    rng = Random(4)
    prompts = [[rng.randrange(300, 1000) for _ in range(200)] for _ in range(6)]
    truth, _ = answers(nano, prompts, prefix_cache=False)
    answers(nano, prompts, shared_cache=store.url)
    client = store.client()
    for name in sorted(client.keys())[::3]:
        client.set(name, os.urandom(client.strlen(name)))
    said, found = answers(nano, prompts, shared_cache=store.url)
    assert said == truth and found.num_tier_faults > 0 and found.loaded_tokens > 0
    with Engine.from_loaded(EngineConfig(device="cpu", num_blocks=256, shared_cache=store.url), nano) as engine:
        acts = [
            lambda: os.kill(store.process.pid, signal.SIGSTOP),
            lambda: None,
            lambda: os.kill(store.process.pid, signal.SIGCONT),
            store.kill,
            lambda: None,
            lambda: (store.path.unlink(missing_ok=True), store.start()),
        ]
        for act, prompt, expected in zip(acts, prompts, truth, strict=True):
            act()
            assert engine.generate(prompt, GREEDY).token_ids == expected
