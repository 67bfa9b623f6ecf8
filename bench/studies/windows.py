"""What letting go of keys behind windows brings: how much of long chats the same memory holds, and what is hit.

    python bench/studies/windows.py [--chats 24] [--turns 8]

Chats are answered turn by turn, in random order, by the engine itself with a model that computes nothing; its layers
have the proportions of Gemma 3 (of six layers five with a window of 1,024 tokens) and of gpt-oss (every other one, of
128). Both pools have the same bytes. "all keys": as if no layer had a window. Prints, by the memory in tokens of all
layers, how many tokens' keys have a block, the share of prompt tokens that were cached, and how many bytes were held in
the end, for each token that the tree has, of what all layers take.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.fakes import VOCAB_SIZE, FakeDecoder, FakeModelConfig, fake_engine

from phloem.runtime.models.config import LayerConfig
from phloem.runtime.request import SamplingParams

BLOCK = 16
NUMBER_BYTES = 8  # of the fake model's numbers, one key and one value per layer and token
MODELS = {"Gemma 3": (0, 1024, 1024, 1024, 1024, 1024), "gpt-oss": (0, 128)}
MEMORIES = (32_768, 65_536, 131_072)  # tokens
ASKED, ANSWERED = range(300, 1500), range(16, 64)


class BlankDecoder(FakeDecoder):
    """Believes nothing, in no time."""

    def __init__(self, windows: tuple[int, ...]) -> None:
        layers = tuple(LayerConfig(window=window, rope=0) for window in windows)
        config = replace(FakeModelConfig(), layers=layers, num_layers=len(layers), max_position_embeddings=1 << 17)
        super().__init__(config)

    def forward(self, token_ids: torch.Tensor, *others: Any, **_: Any) -> torch.Tensor:
        rows = others[-1]
        return torch.zeros(len(token_ids) if rows is None else len(rows), VOCAB_SIZE)


def play(windows: tuple[int, ...], memory: int, num_chats: int, num_turns: int) -> tuple[int, float, float]:
    """(Tokens with a block, share of prompt tokens cached, bytes held per token of the tree as a share)."""
    token_bytes = 2 * NUMBER_BYTES * len(windows)
    settings: dict[str, Any] = {"num_blocks": None, "kv_memory_bytes": memory * token_bytes, "block_size": BLOCK}
    settings |= {"check_invariants": False, "lookup_drafts": False, "max_running_requests": 4}
    engine, random = fake_engine(decoder=BlankDecoder(windows), **settings), Random(5)
    chats: list[list[int]] = [[] for _ in range(num_chats)]
    turns = [number for number in range(num_chats) for _ in range(num_turns)]
    random.shuffle(turns)
    num_asked = num_cached = 0
    for number in turns:
        chats[number] += [random.randrange(256) for _ in range(random.choice(ASKED))]
        params = SamplingParams(max_tokens=random.choice(ANSWERED), temperature=0.0, ignore_eos=True)
        found = engine.generate(chats[number], params)
        num_asked += len(chats[number])
        num_cached += found.usage.cached_tokens
        chats[number] += found.token_ids
    cache = engine.prefix_cache
    num_blocks, store = cache.tree.num_cached_blocks, cache.slots.windows
    num_windowed = sum(window > 0 for window in windows)
    held = num_blocks * len(windows)
    if store is not None:
        held = num_blocks * (len(windows) - num_windowed) + store.slots.num_used * num_windowed
    share = held / (num_blocks * len(windows))
    return cache.pool.num_blocks * BLOCK, num_cached / num_asked, share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=24)
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    print(f"{options.chats} chats of {options.turns} turns, {ASKED.start} to {ASKED.stop} tokens asked in each")
    print(f"{'':<10}{'memory':>9}{'all keys':>20}{'windows':>30}")
    print(f"{'':<10}{'tokens':>9}{'tokens':>11}{'hits':>9}{'tokens':>11}{'hits':>9}{'bytes':>10}")
    for name, windows in MODELS.items():
        for memory in MEMORIES:
            tokens, hits, _ = play((0,) * len(windows), memory, options.chats, options.turns)
            more, found, share = play(windows, memory, options.chats, options.turns)
            print(f"{name:<10}{memory:>9,}{tokens:>11,}{hits:>9.1%}{more:>11,}{found:>9.1%}{share:>10.1%}", flush=True)


if __name__ == "__main__":
    main()
