"""Drafts by look-up: tokens per second of decoding with and without, and transformers' prompt look-up, in turns.

    OMP_NUM_THREADS=1 python bench/studies/lookup_drafts.py [--rounds 3] [--tokens 128] [--prompt 320] [--skip-nano]

How many drafted tokens are right depends on the text, not on what computes it; what a step costs depends on the model.
So a random model of SmolLM-135M's shape is *taught* real texts: it computes everything, and then the logit of the token
that the text goes on with is raised above all others. All sides are taught the same, so all write the text, and a
draft is right where the text says so. The texts, eight of each kind:

    edited code      a module of the standard library, and the same with two names replaced
    JSON             short documents, and their values as JSON
    code, prose      a module, a page of these docs: the first tokens are the prompt, the next ones the answer
    nothing repeats  different tokens throughout: what looking costs where there is nothing to find

Tokens are those of a byte-level BPE trained on the standard library and these docs. Then the bundled model extracts
JSON by itself, greedily and sampled, from other documents in each round.

Times are CPU seconds on one thread, from the first token on (so without the prompt); medians of the rounds. `x` is with
look-ups by without; `drafted` is by tokens that were written. "again" is with look-ups also in the radix tree, where
the same request has been answered before; in all other columns every answer is new. transformers drafts for one
sequence at a time only.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import phloem as ph
from phloem.kernels import AttentionPlan
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.loading import load

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts")]

from cpu_decode import SMOLLM_135M, commit, machine  # noqa: E402
from nano_text import SYSTEM_PROMPT, documents  # noqa: E402
from taught_texts import NUM_TEXTS, Text, make_texts, train_tokenizer  # noqa: E402

RAISED = 1e4
WAYS = ("with", "without", "again")


# ------------------------------------------------------------------ taught models


class Teacher:
    """A decoder that computes what it is given, and then prefers what the text goes on with."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.config, self.dtype = decoder.config, decoder.dtype
        self.texts: dict[int, list[int]] = {}  # by the first token
        self._text_at: dict[int, list[int]] = {}  # by the first block of the request that writes it

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
    ) -> torch.Tensor:
        logits: torch.Tensor = self._decoder.forward(token_ids, positions, kv_cache, plan, slots, logits_rows)
        starts, at = np.asarray(plan.query_starts), positions.tolist()
        for request, start in enumerate(starts[:-1].tolist()):
            if at[start] == 0 and start < int(starts[request + 1]):
                self._text_at[int(plan.block_tables[request][0])] = self.texts[int(token_ids[start])]
        rows = range(len(at)) if logits_rows is None else logits_rows.tolist()
        for index, row in enumerate(rows):
            request = int(np.searchsorted(starts, row, side="right")) - 1
            text = self._text_at[int(plan.block_tables[request][0])]
            if at[row] + 1 < len(text):
                logits[index, text[at[row] + 1]] = RAISED
        return logits


class TaughtProcessor:
    """The same for transformers; notes when the first token was decided."""

    def __init__(self, texts: list[list[int]], paddings: list[int]) -> None:
        self._texts, self._paddings = texts, paddings
        self.begin = 0.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.begin = self.begin or time.process_time()
        for row, (text, padding) in enumerate(zip(self._texts, self._paddings, strict=True)):
            place = input_ids.shape[1] - padding
            if place < len(text):
                scores[row, text[place]] = RAISED
        return scores


@dataclass
class Run:
    """Of some texts: CPU seconds after the first token, tokens, and how many of them were drafted and accepted."""

    seconds: float
    num_tokens: int
    num_drafted: int = 0
    num_accepted: int = 0


def run_engine(engine: ph.Engine, teacher: Teacher, texts: list[Text]) -> Run:
    """All texts at once. Their prompts are in the cache from the second time on."""
    teacher.texts = {text.prompt[0]: [*text.prompt, *text.answer] for text in texts}
    asked = {}
    for text in texts:
        params = ph.SamplingParams(max_tokens=len(text.answer), temperature=0.0, ignore_eos=True)
        asked[engine.core.add(text.prompt, params)] = text
    said: dict[str, list[int]] = {name: [] for name in asked}
    usages, begin = [], 0.0
    while engine.core.has_work:
        for delta in engine.core.step():
            assert delta.error is None, delta.error
            said[delta.request_id] += delta.token_ids
            if delta.finish_reason is not None:
                usages.append(delta.usage)
        if not begin and all(said.values()):
            begin = time.process_time()
    seconds = time.process_time() - begin
    for name, text in asked.items():
        assert said[name] == text.answer, "not the text that was taught"
    drafted, accepted = (sum(getattr(u, name) for u in usages) for name in ("drafted_tokens", "jumped_tokens"))
    return Run(seconds, sum(map(len, said.values())) - len(texts), drafted, accepted)


def run_transformers(model: Any, texts: list[Text], num_lookup: int | None) -> Run:
    from transformers import LogitsProcessorList

    width, longest = max(len(text.prompt) for text in texts), max(len(text.answer) for text in texts)
    paddings = [width - len(text.prompt) for text in texts]
    ids = torch.tensor([[0] * padding + text.prompt for text, padding in zip(texts, paddings, strict=True)])
    mask = torch.tensor([[0] * padding + [1] * len(t.prompt) for t, padding in zip(texts, paddings, strict=True)])
    taught = TaughtProcessor([[*text.prompt, *text.answer] for text in texts], paddings)
    options: dict[str, Any] = {} if num_lookup is None else {"prompt_lookup_num_tokens": num_lookup}
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            min_new_tokens=longest,
            max_new_tokens=longest,
            pad_token_id=0,
            logits_processor=LogitsProcessorList([taught]),
            **options,
        )
    seconds = time.process_time() - taught.begin
    for text, row in zip(texts, out.tolist(), strict=True):
        assert row[width : width + len(text.answer)] == text.answer, "not the text that was taught"
    return Run(seconds, sum(len(text.answer) for text in texts) - len(texts))


def in_turns(runs: dict[str, Callable[[], Run]], num_rounds: int) -> dict[str, Run]:
    """Medians of the seconds; a first round settles what is compiled and learnt."""
    found: dict[str, list[Run]] = {name: [] for name in runs}
    for _ in range(num_rounds + 1):
        for name, run in runs.items():
            found[name].append(run())
    return {
        name: replace(done[-1], seconds=statistics.median(run.seconds for run in done[1:]))
        for name, done in found.items()
    }


def total(runs: Iterator[Run]) -> Run:
    every = list(runs)
    return Run(*(sum(values) for values in zip(*(vars(run).values() for run in every), strict=True)))


def compare_taught(options: argparse.Namespace) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**SMOLLM_135M, eos_token_id=0, bos_token_id=None)).eval()
        model.save_pretrained(folder)
        tokenizer = train_tokenizer(folder)
        loaded = load(EngineConfig(model=name, device="cpu", num_threads=1))
    teachers = {name: Teacher(loaded.decoder) for name in WAYS}
    engines = {
        name: ph.Engine.from_loaded(
            EngineConfig(device="cpu", num_blocks=4096, lookup_drafts=name != "without"),
            replace(loaded, decoder=teacher),  # type: ignore[arg-type]  # all that is asked of one
        )
        for name, teacher in teachers.items()
    }
    # else it is all "again"
    engines["with"].prefix_cache.view.continuation = lambda request: []  # type: ignore[method-assign]
    texts = make_texts(tokenizer, options.prompt, options.tokens)
    print(
        f"\nSmolLM-135M's shape, taught; prompts of {options.prompt} tokens, answers of {options.tokens}; decode tok/s"
    )
    print(f"{'':24}{'batch':>6}{'with':>8}{'without':>9}{'x':>7}{'drafted':>9}{'right':>7}", end="")
    print(f"{'again':>8}{'HF':>8}{'HF look-up':>12}")
    for kind, of_kind in texts.items():
        if options.kinds and kind not in options.kinds.split(","):
            continue
        for batch in (1, NUM_TEXTS):
            groups = [of_kind[first : first + batch] for first in range(0, NUM_TEXTS, batch)]
            if batch == 1:
                groups = groups[: options.singles]
            runs: dict[str, Callable[[], Run]] = {
                name: lambda name=name, groups=groups: total(  # type: ignore[misc]  # defaults bind
                    run_engine(engines[name], teachers[name], group) for group in groups
                )
                for name in WAYS
            }
            if batch == 1 and not options.skip_transformers:
                for name, number in (("HF", None), ("HF look-up", 10)):
                    runs[name] = lambda groups=groups, number=number: total(  # type: ignore[misc]  # defaults bind
                        run_transformers(model, group, number) for group in groups
                    )
            show(f"{kind:24}", batch, in_turns(runs, options.rounds))


def show(kind: str, batch: int, found: dict[str, Run]) -> None:
    rates = {name: run.num_tokens / run.seconds for name, run in found.items()}
    run = found["with"]
    right = f"{run.num_accepted / run.num_drafted:.0%}" if run.num_drafted else "-"
    others = [f"{rates[name]:.1f}" if name in rates else "" for name in ("again", "HF", "HF look-up")]
    print(
        f"{kind}{batch:>6}{rates['with']:>8.1f}{rates['without']:>9.1f}{rates['with'] / rates['without']:>7.3f}"
        f"{run.num_drafted / run.num_tokens:>9.0%}{right:>7}{others[0]:>8}{others[1]:>8}{others[2]:>12}",
        flush=True,
    )


# ------------------------------------------------------------------ the bundled model


def compare_nano(options: argparse.Namespace) -> None:
    engines = {on: ph.Engine("nano", device="cpu", num_threads=1, lookup_drafts=on) for on in (True, False)}
    tokenizer = engines[True].tokenizer
    system = {"role": "system", "content": SYSTEM_PROMPT}

    def asked(seed: int) -> Iterator[tuple[list[int], dict[str, object]]]:
        for document in documents(seed=seed, count=48):
            question = f"{document.text}\n\nExtract the {document.kind.name} as JSON."
            yield tokenizer.apply_chat_template([system, {"role": "user", "content": question}]), document.kind.schema

    num_runs = Counter[bool]()

    def run(on: bool, batch: int, constrained: bool, temperature: float) -> Run:
        engine, done = engines[on], []
        engine.flush_cache()
        params = ph.SamplingParams(max_tokens=192, temperature=temperature, seed=5)
        num_runs[on] += 1
        waiting = list(asked(num_runs[on]))
        begin, num_open = time.process_time(), 0
        while waiting or num_open:  # each that ends makes place for another
            while waiting and num_open < batch:
                prompt, schema = waiting.pop()
                engine.core.add(prompt, params, ph.json_schema(schema) if constrained else None)
                num_open += 1
            for delta in engine.core.step():
                if delta.finish_reason is not None:
                    done.append(delta.usage)
                    num_open -= 1
        seconds = time.process_time() - begin
        drafted, accepted = (sum(getattr(u, name) for u in done) for name in ("drafted_tokens", "jumped_tokens"))
        return Run(seconds, sum(usage.completion_tokens for usage in done), drafted, accepted)

    print("\nThe bundled model, extraction from one document, 48 requests, prompts included; tok/s")
    print(f"{'':36}{'batch':>6}{'with':>8}{'without':>9}{'x':>7}{'drafted':>9}{'right':>7}")
    for constrained in (False, True):
        for temperature in (0.0, 1.0):
            for batch in (1, 8, 48):
                found = in_turns(
                    {
                        name: lambda on=on, b=batch, c=constrained, t=temperature: run(on, b, c, t)  # type: ignore[misc]
                        for name, on in (("with", True), ("without", False))
                    },
                    2 * options.rounds,
                )
                kind = f"{'under the schema' if constrained else 'free'}, temperature {temperature:g}"
                show(f"{kind:36}", batch, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=320)
    parser.add_argument("--kinds", default="", help="only these kinds of texts, by comma")
    parser.add_argument("--singles", type=int, default=4, help="texts of a kind that are written one at a time")
    parser.add_argument("--skip-transformers", action="store_true")
    parser.add_argument("--skip-teacher", action="store_true")
    parser.add_argument("--skip-nano", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(f"{machine()}, 1 thread, torch {torch.__version__}, transformers {transformers.__version__}, ", end="")
    print(f"commit {commit()}; medians of {options.rounds} rounds in turns")
    if not options.skip_nano:
        compare_nano(options)
    if not options.skip_teacher:
        compare_taught(options)


if __name__ == "__main__":
    main()
