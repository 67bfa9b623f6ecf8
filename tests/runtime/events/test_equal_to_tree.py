"""What a subscriber knows after each step is what the tree and the tiers hold, whatever the traffic does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("zmq", reason="pyzmq (phloem[events]) is not installed")
pytest.importorskip("msgpack", reason="msgpack (phloem[events]) is not installed")
pytest.importorskip("msgspec", reason="msgspec, with which the test's subscriber reads events, is not installed")

from phloem.runtime.engine.engine import Engine
from phloem.runtime.offload import DiskTier, MemoryTier
from phloem.runtime.request import SamplingParams

from .subscriber import Subscriber, View
from .traffic import SIZE, Traffic, endpoints, make_engine

LOCAL = "tcp://127.0.0.1:*"


def extra_of(namespace: str, adapter: str | None) -> tuple[str, ...]:
    """What besides tokens is in the name of a prefix's first block, as vLLM writes it."""
    return tuple(key for key in (adapter, namespace) if key)


def equals_tree(traffic: Traffic, *, with_salted: bool) -> Callable[[View], bool]:
    """Whether a subscriber knows of each prompt what the tree has of it, and of no block that the tree has not."""
    expected = []
    for prompt, namespace, adapter in traffic.prompts[-60:]:
        is_published = with_salted or not namespace
        cached = traffic.cached(prompt, namespace, adapter) if is_published else 0
        expected.append((prompt, extra_of(namespace, adapter), cached))
    names = traffic.names()

    def holds(view: View) -> bool:
        here = view.hashes.get("GPU", set())
        same = here == names if with_salted else here <= names
        return same and all(view.match(prompt, SIZE, extra) == cached for prompt, extra, cached in expected)

    return holds


def begin(subscriber: Subscriber, engine: Engine) -> None:
    """Waits until the subscriber hears the engine, and gives it what came before."""
    prompt = [200 + number for number in range(SIZE)]
    while not subscriber.take(20):  # until something comes, the socket may not be connected
        engine.flush_cache()
        engine.generate(prompt, SamplingParams(max_tokens=1))
    subscriber.view, subscriber.numbers, subscriber.num_gaps = View(), [], 0
    subscriber.replay(endpoints(engine)[1], 0)


def run(
    engine: Engine,
    subscriber: Subscriber,
    num_steps: int,
    holds: Callable[[Traffic], Callable[[View], bool]],
    seed: int = 1,
) -> Traffic:
    """Checks after each step, and that the end of the engine leaves nothing."""
    traffic, kinds = Traffic(engine, seed), Counter[str]()
    begin(subscriber, engine)
    for _ in range(num_steps):
        kinds[traffic.step()] += 1
        subscriber.wait(holds(traffic))
    traffic.finish()
    subscriber.wait(holds(traffic))
    subscriber.drain(50)
    assert holds(traffic)(subscriber.view), "and that was the last word"
    statistics = engine.statistics()
    assert statistics.num_event_batches == subscriber.numbers[-1] + 1
    assert statistics.num_dropped_event_batches == 0
    engine.close()
    subscriber.wait(lambda view: not any(view.hashes.values()))
    assert subscriber.num_gaps == 0
    assert len(kinds) == 9 and traffic.num_new_trees, "everything happened"
    assert statistics.num_evicted_blocks > 100 and subscriber.view.num_removed > 100
    return traffic


def config_of(**fields: object) -> dict[str, object]:
    return {"endpoint": LOCAL, "replay_endpoint": LOCAL, **fields}


def test_a_thousand_steps() -> None:
    engine = make_engine(config_of(include_salted=True, topic="kv@pod-1@fake"))
    with Subscriber(endpoints(engine)[0], "kv@pod-1@fake") as subscriber:
        run(engine, subscriber, 1000, lambda traffic: equals_tree(traffic, with_salted=True))
        assert subscriber.view.num_cleared


def test_the_positional_form_says_the_same() -> None:
    engine = make_engine(config_of(include_salted=True, format="array"))
    with Subscriber(endpoints(engine)[0], form="array") as subscriber:
        run(engine, subscriber, 200, lambda traffic: equals_tree(traffic, with_salted=True))


def test_of_salted_requests_nothing_is_published_unless_asked() -> None:
    engine = make_engine(config_of())
    with Subscriber(endpoints(engine)[0]) as subscriber:
        traffic = run(engine, subscriber, 200, lambda traffic: equals_tree(traffic, with_salted=False))
        asked = {bool(namespace) for _, namespace, _ in traffic.prompts}
        assert asked == {False, True}
        said = {key for _, _, extra in subscriber.view.places for key in extra}
        assert said == {"poet", "clerk"}, "adapters are published, salts are not"


def test_a_salt_that_cannot_be_written_costs_no_other_request_its_events() -> None:
    engine = make_engine(config_of(include_salted=True))
    prompt = [*range(2 * SIZE)]
    with Subscriber(endpoints(engine)[0]) as subscriber:
        begin(subscriber, engine)
        engine.generate([prompt], SamplingParams(max_tokens=1), namespace="half \ud800")
        engine.generate([prompt], SamplingParams(max_tokens=1))
        subscriber.wait(lambda view: view.match(prompt, SIZE) == 2)
        assert subscriber.num_gaps == 0 and engine.statistics().num_event_batches == subscriber.numbers[-1] + 1
    engine.close()


# -- tiers below the pool ---------------------------------------------------------------------------------------------


def equals_tiers(traffic: Traffic) -> Callable[[View], bool]:
    """Whether a subscriber knows what each tier holds, and what the tree does."""
    tiers = traffic.engine.prefix_cache.tiers
    assert tiers is not None and tiers.settle()
    in_tree = equals_tree(traffic, with_salted=True)

    def holds(view: View) -> bool:
        host, disk = tiers._tiers
        assert isinstance(host, MemoryTier) and isinstance(disk, DiskTier)
        for medium, digests in (("CPU_PINNED", list(host._table)), ("DISK", list(disk._known))):
            if view.hashes.get(medium, set()) != {int.from_bytes(digest[:8], "big") for digest in digests}:
                return False
        return in_tree(view)

    return holds


def test_each_tier_is_a_medium(tmp_path: Path) -> None:
    checkpoint, folder = tmp_path / "model", tmp_path / "kv"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    tiers = {"host_memory_bytes": 12 * SIZE * 16, "disk_cache": str(folder), "disk_cache_bytes": 20 * 4096}
    engine = make_engine(config_of(include_salted=True), checkpoint, num_blocks=24, **tiers)
    with Subscriber(endpoints(engine)[0]) as subscriber:
        run(engine, subscriber, 200, equals_tiers)
    lower = engine.prefix_cache.tiers
    assert lower is not None and lower.statistics().num_loaded > 10
    (disk,) = (tier for tier in lower._tiers if isinstance(tier, DiskTier))
    assert disk.num_removed > 10, "files have made room for others"
