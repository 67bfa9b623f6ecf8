"""Whatever happens to the store of a prefill and a decode worker: answers are right, and salts never cross."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

redis: Any = pytest.importorskip("redis", reason="redis (phloem[shared]) is not installed")

from phloem.runtime.config import EngineConfig  # noqa: E402
from phloem.runtime.engine.async_engine import AsyncEngine  # noqa: E402
from phloem.runtime.engine.engine import Engine  # noqa: E402
from phloem.runtime.execute.loading import LoadedModel, load  # noqa: E402
from phloem.runtime.request import RequestOptions, SamplingParams  # noqa: E402
from phloem.runtime.server.prefill import answers  # noqa: E402
from phloem.runtime.server.prepare import EngineCall  # noqa: E402

from .store_process import Store, short_folder  # noqa: E402

GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
PROMPT = [Random(1).randrange(300, 1000) for _ in range(300)]
WHOLE = 288  # tokens of it in whole blocks, the last token aside


@pytest.fixture(scope="module")
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


@pytest.fixture(scope="module")
def truth(nano: LoadedModel) -> tuple[int, ...]:
    with Engine.from_loaded(EngineConfig(device="cpu", num_blocks=64, prefix_cache=False), nano) as engine:
        return tuple(engine.generate(PROMPT, GREEDY).token_ids)


@pytest.fixture
def store() -> Iterator[Store]:
    with short_folder() as folder:
        made = Store(folder)
        try:
            yield made
        finally:
            made.kill()


def config_of(url: str, role: str, **fields: Any) -> EngineConfig:
    return EngineConfig(device="cpu", num_blocks=64, shared_cache=url, role=role, **fields)  # type: ignore[arg-type]


def prefill(nano: LoadedModel, url: str, prompt: list[int], namespace: str = "", **fields: Any) -> None:
    """What a prefill worker does with a request, up to its answer."""

    async def ask(engine: AsyncEngine) -> None:
        call = EngineCall((), SamplingParams(max_tokens=1), None, RequestOptions(namespace=namespace))
        async for _ in answers(engine, prompt, call):
            pass

    engine = AsyncEngine(Engine.from_loaded(config_of(url, "prefill", **fields), nano))
    try:
        asyncio.run(ask(engine))
    finally:
        engine.stop()


def decode(
    nano: LoadedModel, url: str, prompt: list[int], namespace: str = "", **fields: Any
) -> tuple[tuple[int, ...], int, int]:
    """What a decode worker of its own says; how many tokens it has loaded, and faults of the store that it has met."""
    with Engine.from_loaded(config_of(url, "decode", **fields), nano) as engine:
        done = engine.generate(prompt, GREEDY, namespace=namespace)
        return tuple(done.token_ids), done.usage.loaded_tokens, engine.statistics().num_tier_faults


def rewrite(store: Store, change: Callable[[list[bytes]], list[bytes]]) -> None:
    client = store.client()
    names = sorted(client.keys())
    assert names
    for name, value in zip(names, change(client.mget(names)), strict=True):
        client.set(name, value)


def make_lists(store: Store) -> None:
    client = store.client()
    for name in client.scan_iter():
        client.delete(name)
        client.rpush(name, "a", "b")


def fill(store: Store) -> None:
    store.client().config_set("maxmemory-policy", "noeviction")
    store.client().config_set("maxmemory", "1")


def freeze(store: Store) -> None:
    os.kill(store.process.pid, signal.SIGSTOP)


LATE: dict[str, Callable[[Store], None]] = {  # after the prefill worker has written
    "gone": Store.kill,
    "stopped": freeze,
    "restarted": Store.restart,
    "emptied": lambda store: store.client().flushall(),
    "full": fill,
    "wrong type": make_lists,
    "poisoned": lambda store: rewrite(store, lambda values: [os.urandom(len(value)) for value in values]),
    "exchanged": lambda store: rewrite(store, lambda values: values[1:] + values[:1]),
    "cut": lambda store: rewrite(store, lambda values: [value[: len(value) // 2] for value in values]),
}
EARLY = {name: LATE[name] for name in ("gone", "stopped", "full")}


@pytest.mark.parametrize("fault", LATE)
def test_what_happens_before_the_decode_worker_reads_changes_no_token(
    nano: LoadedModel, truth: tuple[int, ...], store: Store, fault: str
) -> None:
    prefill(nano, store.url, PROMPT)
    LATE[fault](store)
    said, num_loaded, num_faults = decode(nano, store.url, PROMPT)
    assert said == truth and num_loaded == (WHOLE if fault == "full" else 0)
    if fault != "full":  # writing fails, when all has been said
        assert bool(num_faults) == (fault not in ("restarted", "emptied"))
    if fault not in ("gone", "stopped"):
        assert decode(nano, store.url, PROMPT)[:2] == (truth, WHOLE), "the store is whole again"


@pytest.mark.parametrize("fault", EARLY)
def test_what_happens_before_the_prefill_worker_writes_costs_no_answer(
    nano: LoadedModel, truth: tuple[int, ...], store: Store, fault: str
) -> None:
    EARLY[fault](store)
    prefill(nano, store.url, PROMPT)
    if fault == "stopped":
        os.kill(store.process.pid, signal.SIGCONT)
    said, num_loaded, _ = decode(nano, store.url, PROMPT)
    assert said == truth and num_loaded == 0


@contextmanager
def slowed(store: Store, seconds: float) -> Iterator[str]:
    """URL of the same store, of which every answer takes so much longer."""
    path = store.path.with_name("slow")
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(path))
        bound.listen()

        def hand_on(source: socket.socket, target: socket.socket, wait: float) -> None:
            try:
                while data := source.recv(1 << 16):
                    time.sleep(wait)
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def serve(client: socket.socket) -> None:
            with closing(client), closing(socket.socket(socket.AF_UNIX)) as server:
                server.connect(str(store.path))
                there = threading.Thread(target=hand_on, args=(client, server, 0.0), daemon=True)
                there.start()
                hand_on(server, client, seconds)

        def accept() -> None:
            try:
                while True:
                    threading.Thread(target=serve, args=(bound.accept()[0],), daemon=True).start()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"unix://{path}"
        bound.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("seconds", [0.02, 1.0])
def test_a_slow_store_costs_time_alone(nano: LoadedModel, truth: tuple[int, ...], store: Store, seconds: float) -> None:
    prefill(nano, store.url, PROMPT)
    with slowed(store, seconds) as url:
        said, num_loaded, num_faults = decode(nano, url, PROMPT)
    assert said == truth
    if seconds == 1.0:  # longer than an answer is awaited
        assert num_loaded == 0 and num_faults


def test_another_model_finds_nothing_and_spoils_nothing(
    nano: LoadedModel, truth: tuple[int, ...], store: Store, tmp_path: Path
) -> None:
    assert nano.folder is not None
    copied = tmp_path / "weights"
    copied.mkdir()
    for path in nano.folder.iterdir():
        if path.is_file():
            (copied / path.name).write_bytes(path.read_bytes())
    config = (copied / "config.json").read_text()
    (copied / "config.json").write_text(config + "\n")  # the numbers are the same: it is the bytes that count
    other = replace(nano, folder=copied)
    prefill(other, store.url, PROMPT)
    assert decode(nano, store.url, PROMPT) == (truth, 0, 0)
    for fields in ({"block_size": 32}, {"kv_dtype": "int8"}, {"quantise": "int8"}):
        settings = config_of(store.url, "decode", **fields)
        with Engine.from_loaded(settings, load(settings)) as engine:
            assert engine.generate(PROMPT, GREEDY).usage.loaded_tokens == 0, fields
    assert decode(nano, store.url, PROMPT) == (truth, WHOLE, 0), "which the first decode worker has computed"


def test_salts_never_cross(nano: LoadedModel, truth: tuple[int, ...], store: Store) -> None:
    salts = ["", "a", "b", "a\0b", "ab"]
    for salt in salts:
        store.client().flushall()
        prefill(nano, store.url, PROMPT, salt)
        names = set(store.client().keys())
        for other in salts:
            said, num_loaded, _ = decode(nano, store.url, PROMPT, other)
            assert said == truth and num_loaded == (WHOLE if other == salt else 0), (salt, other)
            store.client().delete(*(set(store.client().keys()) - names))  # what it has computed
