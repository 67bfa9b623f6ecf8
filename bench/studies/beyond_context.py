"""Outputs that go on past the model's context: likelihood of what is read there, time per token, keys that are held.

    OMP_NUM_THREADS=1 python bench/studies/beyond_context.py --model FOLDER [--context 1024] [--tokens 6000] [--texts 3]

Modules of Python's library are read on after their first 256 tokens, over three caches: all keys, in the
model's own context; the first four and the last of them, in a context of --context tokens (`beyond_context`); and the
same keys, turned by the positions at which they were computed, which the model's own context must hold (`sinks` alone).
Then text is written past --context: CPU milliseconds per token and keys that are held, 500 tokens at a time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import machine
from kv_budget import Setting, read, texts

import phloem as ph

FIRST, PART = 256, 500  # tokens of prompts, and of a part of what follows


class Beyond(Setting):
    """As its base, past the context."""

    def __str__(self) -> str:
        return f"beyond {self.budget}"

    def sampling(self, max_tokens: int) -> ph.SamplingParams:
        return ph.SamplingParams(
            max_tokens=max_tokens, temperature=0.0, ignore_eos=True, kv_budget=self.budget, kv_policy="sinks",
            beyond_context=True,
        )  # fmt: skip


def losses(engine: ph.Engine, token_ids: list[int], setting: Setting) -> list[float]:
    """Nats a token of each part of what follows the prompt."""
    following = token_ids[FIRST:]
    scores = read(engine, token_ids[:FIRST], following, setting).log_softmax(-1)
    of_each = -scores[range(len(following) - 1), torch.tensor(following[1:])]
    return [float(part.mean()) for part in of_each.split(PART)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint folder")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--texts", type=int, default=3)
    args = parser.parse_args()
    budget = args.context * 3 // 4
    print(f"python bench/studies/beyond_context.py {' '.join(sys.argv[1:])}".replace(args.model, "FOLDER"))
    print(f"{machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}", flush=True)
    options = {"device": "cpu", "lookup_drafts": False}
    with (
        ph.Engine(args.model, num_blocks=(FIRST + args.tokens) // 16 + 9, **options) as whole,
        ph.Engine(args.model, num_blocks=2 * args.context // 16, max_model_len=args.context, **options) as short,
    ):
        sides = ((whole, Setting()), (short, Beyond(budget)), (whole, Setting(budget, "sinks")))
        found: dict[str, list[list[float]]] = {}
        for _, token_ids in texts(whole.tokenizer, FIRST + args.tokens, args.texts):
            for engine, setting in sides:
                found.setdefault(str(setting), []).append(losses(engine, token_ids, setting))
                engine.flush_cache()
        print(f"\nNats a token in parts of {PART} tokens, after the first {FIRST}; context {args.context}")
        for name, parts in found.items():
            shown = "".join(f"{statistics.mean(part):8.3f}" for part in zip(*parts, strict=True))
            print(f"{name:<13}{len(parts):>3} texts{shown}", flush=True)
        print(f"\nWriting past a context of {args.context}\n{'tokens':>8}{'CPU ms/token':>14}{'keys held':>11}")
        said, began, most = 0, time.process_time(), 0
        short.core.add(list(range(100, 100 + FIRST)), Beyond(budget).sampling(args.tokens))
        while short.core.has_work:
            said += sum(len(delta.token_ids) for delta in short.core.step())
            state = short.statistics()
            most = max(most, 16 * (state.num_blocks - state.num_free_blocks - state.num_evictable_blocks))
            if said and said % PART == 0:
                spent, began = time.process_time() - began, time.process_time()
                print(f"{said:>8}{1000 * spent / PART:>14.1f}{most:>11}", flush=True)
                most = 0


if __name__ == "__main__":
    main()
