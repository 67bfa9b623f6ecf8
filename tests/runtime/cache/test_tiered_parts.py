"""What groups of layers need besides all keys goes to the tiers below the pool and comes back: states, and windows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import pack
from phloem.runtime.engine.engine import Engine
from phloem.runtime.offload.tier_writer import TierWriter

from ..engine.test_run_ahead import QUESTIONS
from ..fakes import FakeDecoder
from ..recurrent_fake import RecurrentFakeDecoder
from ..windowed_fake import WindowedFakeDecoder
from .tiered_engines import GREEDY, say, settle, tiered_engine

PROMPT = list(range(1, 34))  # eight whole blocks
KINDS = {"states": RecurrentFakeDecoder, "windows": lambda: WindowedFakeDecoder(6)}


def parted_engine(kind: str, checkpoint: Path, disk: Path | None = None, **options: Any) -> Engine:
    decoder: FakeDecoder = KINDS[kind]()
    sizes = {"num_blocks": 12 if kind == "states" else 64, "state_interval": 16, "max_running_requests": 3}
    return tiered_engine(checkpoint, disk, decoder=decoder, **{**sizes, **options})


def crowd_out_all(engine: Engine) -> None:
    """Others take all blocks and all slots."""
    for number in range(6):
        engine.generate([200 - i % 30 for i in range(40)], GREEDY, namespace=f"other {number}")
    settle(engine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["host", "disk", "disk, after a restart"])
def test_a_hit_from_a_tier_goes_on_at_the_last_block(kind: str, where: str, checkpoint: Path, tmp_path: Path) -> None:
    disk, host_blocks = (None, 99) if where == "host" else (tmp_path, 0)
    engine = parted_engine(kind, checkpoint, disk, host_blocks=host_blocks)
    first, cached, _ = say(engine, PROMPT)
    assert cached == 0
    if where == "disk, after a restart":
        settle(engine)
        assert engine.statistics().num_stored_blocks == (len(PROMPT) + len(first) - 1) // 4, "parts are no blocks"
        engine.close()
        engine = parted_engine(kind, checkpoint, disk)
    else:
        crowd_out_all(engine)
    assert say(engine, PROMPT)[1:] == (32, 32)
    assert say(engine, [*PROMPT, *first, 7])[1] == 37, "the turn's end is in the pool now"
    engine.audit()
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_parts_alone_come_back_where_the_keys_have_stayed(kind: str, checkpoint: Path) -> None:
    """Blocks for all, and slots for few."""
    engine = parted_engine(kind, checkpoint, host_blocks=300, num_blocks=300, state_memory_bytes=16 * 9)
    say(engine, PROMPT)
    for number in range(40):
        engine.generate([200 - i for i in range(12)], GREEDY, namespace=f"other {number}")
    settle(engine)
    match = engine.prefix_cache.tree.match(pack(PROMPT[:32]), "")
    books = engine.prefix_cache.slots.parts
    assert match.num_tokens == 32 and books is not None
    assert books.resumable(match) < 32
    assert say(engine, PROMPT)[1:] == (32, 0)
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_keys_without_what_else_is_needed_are_not_read(
    kind: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = parted_engine(kind, checkpoint, host_blocks=99)
    monkeypatch.setattr(TierWriter, "offer_part", lambda *_: None)
    say(engine, PROMPT)
    crowd_out_all(engine)
    done = engine.generate(PROMPT, GREEDY, explain_cache=True)
    assert (done.usage.cached_tokens, done.usage.loaded_tokens) == (0, 0)
    explained = done.usage.cache_explanation
    assert explained is not None
    assert explained.reason == {"states": "no_state", "windows": "no_window"}[kind]
    assert explained.num_agreeing_tokens == 32
    engine.close()


@settings(max_examples=12)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_every_part_that_is_read_is_that_of_the_tokens_before(kind: str, checkpoint: Path, data: st.DataObject) -> None:
    """Arrivals, aborts, forks, drafts and preemptions at any step, over tiers, with few blocks and few slots."""
    with tempfile.TemporaryDirectory() as folder:
        engine = parted_engine(
            kind,
            checkpoint,
            Path(folder) / "kv" if data.draw(st.booleans()) else None,
            host_blocks=data.draw(st.sampled_from([5, 40])),
            jump=data.draw(st.sampled_from(["off", "verified"])),
            num_blocks=data.draw(st.sampled_from([64, 80])),
            max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
            state_interval=data.draw(st.sampled_from([0, 1, 8])),
            state_memory_bytes=16 * data.draw(st.sampled_from([3, 9, 30])),
        )
        QUESTIONS.check_traffic(data, engine)
        engine.close()
