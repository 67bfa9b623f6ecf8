"""Requests that keep a budget of keys and values after long prompts: speed, memory and quality, side by side.

    OMP_NUM_THREADS=1 python bench/studies/kv_budget.py --model FOLDER [--lengths 2048,8000]
        [--budgets 256,1024] [--peer]

Three tables, all on one thread, whole cache and budgets in turns:

    speed       CPU seconds to the first token of requests whose prompts are cached, that of choosing and copying keys
                among them; tokens per CPU-second of decoding from there on; KV that is held meanwhile, and how many
                requests that makes for a GiB
    likelihood  the last tokens of modules of Python's library, read after all that is before them: nats per token more
                than over the whole cache, and how many likeliest tokens are the same
    needles     a number in a comment somewhere in such a text, asked for at its end: how many are found

A token counts for quality only if it was read over what was kept: the first one after the prompt is decided by the
prompt's last position, which sees all. Without --model weights of SmolLM-135M's shape are random, and only the first
table is made. --peer adds NVIDIA's kvpress on transformers, where it is installed: the same policies (it takes means
where we take the highest of neighbours) with the same window and budgets on the same texts, its decoding alone in the
speed table.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import SMOLLM_135M, machine

import phloem as ph
from phloem.runtime.execute.batch import Batch, Extend
from phloem.runtime.kv_compress.budget import next_compaction
from phloem.runtime.kv_compress.policy import places_kept
from phloem.runtime.kv_policies import KV_POLICIES, NUM_SINKS, WINDOW
from phloem.runtime.schedule.share import share

MODULES = (
    "argparse", "calendar", "configparser", "datetime", "difflib", "doctest", "ftplib", "inspect",
    "mailbox", "optparse", "pickle", "smtplib", "statistics", "subprocess", "tarfile", "zipfile",
)  # fmt: skip
READ = 128  # tokens whose likelihood counts
CITIES = ("Tolva", "Paris", "Lima", "Oslo")


@dataclass(frozen=True)
class Setting:
    """Which keys are kept; no budget: all."""

    budget: int | None = None
    policy: str = "snapkv"

    def __str__(self) -> str:
        return "whole" if self.budget is None else f"{self.policy} {self.budget}"

    def sampling(self, max_tokens: int) -> ph.SamplingParams:
        return ph.SamplingParams(
            max_tokens=max_tokens, temperature=0.0, ignore_eos=True, kv_budget=self.budget, kv_policy=self.policy
        )


def settings_of(budgets: list[int], side: str = "phloem") -> list[Setting]:
    """Those that a side has: kvpress counts attention only where it is written out, which costs more."""
    policies = [policy for policy in KV_POLICIES if side == "phloem" or policy != "h2o"]
    return [Setting(), *(Setting(budget, policy) for policy in policies for budget in budgets)]


# -- speed -------------------------------------------------------------------------------------------------------------


@dataclass
class Spent:
    """Of one setting, round by round: seconds to the first token, tokens a second after it; bytes held at the end."""

    first: list[float]
    rate: list[float]
    held: float = 0.0


def run_engine(engine: ph.Engine, prompts: list[list[int]], setting: Setting, num_tokens: int, spent: Spent) -> None:
    start = time.process_time()
    for prompt in prompts:
        engine.core.add(prompt, setting.sampling(num_tokens))
    num_said, began = 0, 0.0
    while engine.core.has_work:
        num_said += sum(len(delta.token_ids) for delta in engine.core.step())
        if not began and num_said >= len(prompts):
            began, num_before = time.process_time(), num_said
            spent.first.append((began - start) / len(prompts))
        if engine.core.has_work:
            state = engine.statistics()
            held = state.num_blocks - state.num_free_blocks - state.num_evictable_blocks
            spent.held = held * engine.config.block_size / len(prompts)
    spent.rate.append((num_said - num_before) / (time.process_time() - began))


def compare_speed(engine: ph.Engine, args: argparse.Namespace, peer: Peer | None) -> None:
    config = engine.model_config
    per_token = 2 * 4 * config.num_layers * config.num_kv_heads * config.head_dim
    print(f"\nSpeed, {args.tokens} tokens; medians of {args.rounds} rounds; KV is {per_token / 1024:.0f} KiB a token")
    print(
        f"{'prompt':>8}{'batch':>6}  {'kept':<13}{'first s':>9}{'tok/s':>8}{'x':>6}{'KV MiB':>9}{'per GiB':>9}"
        f"{'peer tok/s' if peer else '':>12}"
    )
    for length in args.lengths:
        source = Random(length)
        prompts = [[source.randrange(10, config.vocab_size) for _ in range(length)] for _ in range(max(args.batches))]
        for prompt in prompts:
            engine.generate(prompt, Setting().sampling(1))
        for batch in args.batches:
            spents = {setting: Spent([], []) for setting in settings_of(args.budgets)}
            theirs: dict[Setting, list[float]] = {setting: [] for setting in spents}
            for number in range(args.rounds + 1):
                for setting, spent in spents.items():
                    run_engine(engine, prompts[:batch], setting, args.tokens, Spent([], []) if number == 0 else spent)
                    is_theirs = batch == number == 1 and length <= args.peer_length and setting.policy != "h2o"
                    if peer is not None and is_theirs:
                        theirs[setting].append(peer.rate(prompts[0], setting, args.tokens // 2))
            plain = statistics.median(spents[Setting()].rate)
            for setting, spent in spents.items():
                rate, held = statistics.median(spent.rate), spent.held * per_token
                peer_column = f"{statistics.median(theirs[setting]):12.1f}" if theirs[setting] else ""
                print(
                    f"{length:>8}{batch:>6}  {setting!s:<13}{statistics.median(spent.first):>9.2f}{rate:>8.1f}"
                    f"{rate / plain:>6.2f}{held / 2**20:>9.1f}{2**30 / held:>9.1f}{peer_column}",
                    flush=True,
                )
        engine.flush_cache()


# -- quality -----------------------------------------------------------------------------------------------------------


def texts(tokenizer: Any, length: int, most: int) -> Iterator[tuple[str, list[int]]]:
    """At most `most` modules of Python's library that are long enough, cut to `length` tokens."""
    num_found = 0
    for name in MODULES:
        source = Path(sysconfig.get_path("stdlib")) / f"{name}.py"
        token_ids = tokenizer.encode(source.read_text(encoding="utf-8"))
        if len(token_ids) >= length and num_found < most:
            num_found += 1
            yield name, token_ids[:length]


def needles(tokenizer: Any, length: int, most: int) -> Iterator[tuple[str, list[int], list[int]]]:
    """Texts with a number in them and the question at their end, and what is to follow: ` is`, then the number."""
    source = Random(5)
    for name, token_ids in texts(tokenizer, length, most):
        depth, city = source.uniform(0.05, 0.9), source.choice(CITIES)
        number = "".join(source.choice("0123456789") for _ in range(5))
        hidden = tokenizer.encode(f"\n\n# Remember: the secret number of {city} is {number}.\n\n")
        asked = tokenizer.encode(f"\n\n# As said above, the secret number of {city}")
        rest = token_ids[: length - len(hidden) - len(asked)]
        at = int(depth * len(rest))
        yield f"{name} {depth:.0%}", [*rest[:at], *hidden, *rest[at:], *asked], tokenizer.encode(f" is {number}")


def read(engine: ph.Engine, prompt: list[int], following: list[int], setting: Setting) -> torch.Tensor:
    """Logits `[n, vocab_size]` over what is kept: those that decide `following[1:]`. The prompt may be cached."""
    (request,) = engine.core.prepare(prompt, setting.sampling(len(following) + 1))
    request.token_ids.extend(following[:-1])
    cache, logits = engine.prefix_cache, []
    cache.lease(request)
    try:
        while request.num_uncomputed_tokens:
            chunk = share(request, 512)
            assert chunk is not None
            extend: Extend = replace(chunk, logits_from=len(prompt))
            assert cache.reserve(request, extend.end), "the pool is too small"
            logits.append(engine.core._runner.forward(Batch.from_extends([extend], cache.block_size)).clone())
            request.num_computed_tokens = extend.end
            if extend.end == next_compaction(request):
                runner, turn = engine.core._runner, None
                places = places_kept(request, runner.score_keys)
                if request.sampling.beyond_context:
                    num_positions = extend.end - request.num_dropped_tokens - places.shape[-1]
                    turn = partial(runner.turn_back, first=NUM_SINKS, num_positions=num_positions)
                cache.compact(request, places, turn)
    finally:
        cache.release(request)
    return torch.cat(logits)


Reader = Callable[[list[int], list[int], Setting], torch.Tensor]


def compare_quality(tokenizer: Any, readers: dict[str, Reader], args: argparse.Namespace) -> None:
    for length in args.lengths:
        compare_likelihood(tokenizer, readers, length, args)
    for length in args.lengths:
        compare_needles(tokenizer, readers, length, args)


def compare_likelihood(tokenizer: Any, readers: dict[str, Reader], length: int, args: argparse.Namespace) -> None:
    more: dict[tuple[str, Setting], list[float]] = {}
    same: dict[tuple[str, Setting], list[float]] = {}
    base: list[float] = []
    for index, (_, token_ids) in enumerate(texts(tokenizer, length, args.texts)):
        prompt, following = token_ids[:-READ], token_ids[-READ:]
        wanted = torch.tensor(following[1:])
        for side, reader in readers.items():
            if side != "phloem" and (index >= args.peer_texts or length > args.peer_length):
                continue
            for setting in settings_of(args.budgets, side):
                scores = reader(prompt, following, setting).log_softmax(-1)
                loss, best = -float(scores[range(len(wanted)), wanted].mean()), scores.argmax(-1)
                if setting.budget is None:
                    whole_loss, whole_best = loss, best
                    if side == "phloem":
                        base.append(loss)
                    continue
                more.setdefault((side, setting), []).append(loss - whole_loss)
                same.setdefault((side, setting), []).append(float((best == whole_best).float().mean()))
    if not base:
        return
    whole = f"whole: {statistics.mean(base):.3f} nats a token"
    print(f"\nLikelihood of {READ - 1} tokens after {length - READ}; {whole}")
    print(f"{'kept':<13}{'side':<9}{'texts':>6}{'nats more':>11}{'same token':>12}")
    for (side, setting), values in more.items():
        print(f"{setting!s:<13}{side:<9}{len(values):>6}{statistics.mean(values):>11.3f}", end="")
        print(f"{statistics.mean(same[side, setting]):>12.1%}", flush=True)


def compare_needles(tokenizer: Any, readers: dict[str, Reader], length: int, args: argparse.Namespace) -> None:
    found: dict[tuple[str, Setting], list[bool]] = {}
    for index, (_, prompt, following) in enumerate(needles(tokenizer, length, args.texts)):
        wanted = torch.tensor(following[1:])
        for side, reader in readers.items():
            if side != "phloem" and (index >= args.peer_texts or length > args.peer_length):
                continue
            for setting in settings_of(args.budgets, side):
                best = reader(prompt, following, setting).argmax(-1)
                found.setdefault((side, setting), []).append(bool((best == wanted).all()))
    print(f"\nNeedles in {length} tokens: numbers found of those hidden")
    for (side, setting), values in found.items():
        print(f"{setting!s:<13}{side:<9}{sum(values):>4} of {len(values)}", flush=True)


# -- the peer ----------------------------------------------------------------------------------------------------------


class Peer:
    """kvpress on transformers' model of the same weights, one sequence at a time."""

    def __init__(self, folder: Path) -> None:
        import kvpress
        import transformers

        self.name = f"kvpress on transformers {transformers.__version__}"
        self._presses = kvpress
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._new_cache = transformers.DynamicCache

    @torch.inference_mode()
    def read(self, prompt: list[int], following: list[int], setting: Setting) -> torch.Tensor:
        """As the `read` above."""
        cache, _ = self._prefill(prompt, setting)
        return self._forward(cache, following[:-1], len(prompt)).logits[0]

    @torch.inference_mode()
    def rate(self, prompt: list[int], setting: Setting, num_tokens: int) -> float:
        """Tokens per CPU-second of greedy decoding after a prompt."""
        cache, token_id = self._prefill(prompt, setting)
        start = time.process_time()
        for position in range(len(prompt), len(prompt) + num_tokens):
            token_id = int(self._forward(cache, [token_id], position).logits[0, -1].argmax())
        return num_tokens / (time.process_time() - start)

    def _prefill(self, prompt: list[int], setting: Setting) -> tuple[Any, int]:
        """The cache after a prompt, with what the setting keeps, and the next token."""
        cache = self._new_cache()
        with nullcontext() if setting.budget is None else self._press(setting, len(prompt))(self._model):
            logits = self._model(torch.tensor([prompt]), past_key_values=cache, logits_to_keep=1).logits
        assert cache.get_seq_length() == (setting.budget or len(prompt))
        return cache, int(logits[0, -1].argmax())

    def _forward(self, cache: Any, token_ids: list[int], start: int) -> Any:
        positions = torch.arange(start, start + len(token_ids))[None]
        return self._model(torch.tensor([token_ids]), past_key_values=cache, position_ids=positions)

    def _press(self, setting: Setting, length: int) -> Any:
        assert setting.budget is not None
        ratio = 1 - (setting.budget + 0.5) / length  # it rounds down
        if setting.policy == "sinks":
            return self._presses.StreamingLLMPress(compression_ratio=ratio, n_sink=NUM_SINKS)
        return self._presses.SnapKVPress(compression_ratio=ratio, window_size=WINDOW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint folder; none: random weights of SmolLM-135M's shape")
    parser.add_argument("--lengths", default="2048,8000", help="tokens of prompts")
    parser.add_argument("--budgets", default="256,1024")
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="compare with kvpress")
    parser.add_argument("--peer-texts", type=int, default=4, help="how many texts it reads")
    parser.add_argument("--peer-length", type=int, default=2048, help="the longest prompts that it reads")
    parser.add_argument("--texts", type=int, default=len(MODULES), help="how many texts there are")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--skip-quality", action="store_true")
    args = parser.parse_args()
    args.lengths, args.budgets, args.batches = (
        [int(part) for part in text.split(",")] for text in (args.lengths, args.budgets, args.batches)
    )
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(args.model) if args.model else random_checkpoint(Path(made))
        peer = Peer(folder) if args.peer else None
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        print(f"python bench/studies/kv_budget.py {' '.join(sys.argv[1:])}".replace(str(args.model), "FOLDER"))
        print(f"{machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, ", end="")
        print(f"{peer.name + ', ' if peer else ''}commit {commit.stdout.strip() or 'unknown'}", flush=True)
        pool = (max(args.batches) + 1) * (max(args.lengths) + 1024)
        with ph.Engine(str(folder), device="cpu", num_blocks=pool // 16, lookup_drafts=False) as engine:
            if not args.skip_speed:
                compare_speed(engine, args, peer)
            if args.model and not args.skip_quality:
                readers: dict[str, Reader] = {"phloem": lambda *asked: read(engine, *asked)}
                if peer is not None:
                    readers["kvpress"] = peer.read
                compare_quality(engine.tokenizer, readers, args)


def random_checkpoint(folder: Path) -> Path:
    import shutil

    from transformers import LlamaConfig, LlamaForCausalLM

    from phloem.runtime.models import resolve_model

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**SMOLLM_135M, "max_position_embeddings": 16384})).save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resolve_model("nano") / name, folder)
    return folder


if __name__ == "__main__":
    main()
