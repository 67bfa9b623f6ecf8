"""Drafts by a model: tokens per second with and without a draft model, and how many of its tokens are right.

    OMP_NUM_THREADS=1 python bench/studies/model_drafts.py [--draft FOLDER] [--mtp FOLDER] [--minutes 38] [--rounds 3]

First two models that were taught the same texts: the bundled one, and one of a seventh of its size (2 layers of width
64), which `scripts/train_nano.py` trains for `--minutes` unless `--draft` names the result of an earlier run. They
extract JSON from documents that neither has seen, freely and under the schema, greedily and sampled, without look-ups,
and with them. With `--mtp` the same by the bundled model's own layer, which `train_mtp.py` has taught it.

Then a model of SmolLM-135M's shape and a draft model of a fifteenth of its size, both random and *taught* the pages and
modules of `lookup_drafts.py`: they compute everything, and then the logit of the token that the text goes on with is
raised above all others. The draft model is taught a given share of the tokens, and something else for the others. So
acceptance is what is set, and the costs are real.

"x" is speed with by speed without; "drafted" tokens are by those written; "right" are accepted by drafted; "a step" are
tokens of a request by its steps, 1 without drafts. Times are CPU seconds on one thread, from the first token on;
medians of the rounds, sides in turns. Text is the same on both sides (checked). "off" is a draft model that is hardly
ever right: what it costs to find that out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "studies"), str(ROOT / "scripts")]

from cpu_decode import SMOLLM_135M, commit, machine  # noqa: E402
from lookup_drafts import RAISED, Run, Teacher, in_turns  # noqa: E402
from nano_text import SYSTEM_PROMPT, documents  # noqa: E402
from taught_texts import Text, make_texts, train_tokenizer  # noqa: E402

SMALL = {"num_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "num_kv_heads": 1}
DRAFT_SHAPE = {"num_hidden_layers": 4, "hidden_size": 192, "intermediate_size": 512, "num_attention_heads": 3}
KINDS = ("code", "prose")


@dataclass(frozen=True)
class Asked:
    """One request."""

    prompt: list[int]
    params: ph.SamplingParams
    constraint: Any = None


def run(engine: ph.Engine, asked: list[Asked], batch: int) -> tuple[Run, list[tuple[int, ...]]]:
    """All requests, `batch` at a time, each batch after the one before; what they said. Prompts are not timed."""
    said: list[tuple[int, ...]] = []
    seconds, usages = 0.0, []
    for first in range(0, len(asked), batch):
        group = asked[first : first + batch]
        names = [engine.core.add(one.prompt, one.params, one.constraint) for one in group]
        tokens: dict[str, list[int]] = {name: [] for name in names}
        begin = 0.0
        while engine.core.has_work:
            for delta in engine.core.step():
                assert delta.error is None, delta.error
                tokens[delta.request_id] += delta.token_ids
                if delta.finish_reason is not None:
                    usages.append(delta.usage)
            if not begin and all(tokens.values()):
                begin = time.process_time()
        seconds += time.process_time() - begin
        said += [tuple(tokens[name]) for name in names]
    drafted, accepted = (sum(getattr(u, name) for u in usages) for name in ("drafted_tokens", "jumped_tokens"))
    return Run(seconds, sum(map(len, said)) - len(said), drafted, accepted), said


def compare(name: str, engines: dict[str, ph.Engine], asked: list[Asked], batch: int, rounds: int) -> None:
    """One line: the engine "with" next to the one "without"."""
    first: dict[str, list[tuple[int, ...]]] = {}

    def one(side: str) -> Run:
        found, said = run(engines[side], asked, batch)
        first.setdefault(side, said)
        assert said == first[side], "another text in another round"
        return found

    runs: dict[str, Callable[[], Run]] = {side: lambda side=side: one(side) for side in engines}  # type: ignore[misc]
    found = in_turns(runs, rounds)
    assert first["with"] == first["without"], "another text with drafts"
    rates = {side: done.num_tokens / done.seconds for side, done in found.items()}
    done = found["with"]
    right = f"{done.num_accepted / done.num_drafted:.0%}" if done.num_drafted else "-"
    print(
        f"{name:40}{batch:>6}{rates['with']:>8.1f}{rates['without']:>9.1f}{rates['with'] / rates['without']:>7.2f}"
        f"{done.num_drafted / done.num_tokens:>9.0%}{right:>7}"
        f"{done.num_tokens / (done.num_tokens - done.num_accepted):>8.2f}",
        flush=True,
    )


def head(title: str) -> None:
    print(f"\n{title}\n{'':40}{'batch':>6}{'with':>8}{'without':>9}{'x':>7}{'drafted':>9}{'right':>7}{'a step':>8}")


# ------------------------------------------------------------------ the bundled model


def train_small(folder: Path, minutes: float) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "train_nano.py"), "--minutes", str(minutes), "--out", str(folder)]
    for name, value in SMALL.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    subprocess.run(command, check=True)


def extractions(tokenizer: Any, num_documents: int, temperature: float, constrained: bool) -> list[Asked]:
    system = {"role": "system", "content": SYSTEM_PROMPT}
    params = ph.SamplingParams(max_tokens=192, temperature=temperature, seed=5)
    asked = []
    for document in documents(seed=77, count=num_documents):
        question = f"{document.text}\n\nExtract the {document.kind.name} as JSON."
        prompt = tokenizer.apply_chat_template([system, {"role": "user", "content": question}])
        asked.append(Asked(prompt, params, ph.json_schema(document.kind.schema) if constrained else None))
    return asked


def draft_all(engine: ph.Engine, length: int) -> None:
    """From now on all drafts of the engine's draft model have that length, whether they pay or not."""
    model: Any = engine.core._stepper._drafter.model
    model._best_length = lambda request, chance, limit: max(0, min(limit, length))
    model._pays = lambda *asked: True


def compare_nano(model: Path | None, draft: str, rounds: int, num_documents: int, length: int) -> None:
    """model: the bundled one with a layer of its own, for the draft model "mtp"."""
    loaded = load(
        EngineConfig("nano" if model is None else str(model), device="cpu", num_threads=1, speculative_model=draft)
    )
    assert loaded.draft_decoder is not None
    shares = [loaded.draft_decoder.num_weight_bytes, loaded.decoder.num_weight_bytes]
    drafter = f"one of {shares[0] / shares[1]:.0%} of its size" if model is None else "a layer of its own"
    how = f", drafts of {length} whether they pay or not" if length else ""
    head(f"The bundled model, and {drafter} taught the same{how}; decode tok/s")
    with ph.Engine.from_loaded(EngineConfig(device="cpu", lookup_drafts=False), loaded) as engine:
        run(engine, extractions(loaded.tokenizer, 1, 0.0, False), 1)  # what a process does for the first time is slow
    for lookups in (False, True):
        config = EngineConfig(device="cpu", lookup_drafts=lookups, jump="verified" if lookups else "off")
        sides = {"with": loaded, "without": replace(loaded, draft_decoder=None)}
        for constrained in (False, True):
            for temperature in (0.0, 1.0):
                for batch in (1, 8):
                    engines = {side: ph.Engine.from_loaded(config, one) for side, one in sides.items()}
                    for engine in engines.values():  # nothing of an answer is known in the next round
                        engine.prefix_cache.view.continuation = lambda request: []  # type: ignore[method-assign]
                    if length:
                        draft_all(engines["with"], length)
                    asked = extractions(loaded.tokenizer, num_documents, temperature, constrained)
                    others = "beside other drafts" if lookups else "alone"
                    name = f"{'schema' if constrained else 'free'}, temperature {temperature:g}, {others}"
                    compare(name, engines, asked, batch, rounds)
                    for engine in engines.values():
                        engine.close()


# ------------------------------------------------------------------ taught models


class PartTeacher(Teacher):
    """Prefers another token than the text's at some places.

    Args:
        right: share of the places at which it prefers the text's.
    """

    def __init__(self, decoder: Any, right: float) -> None:
        super().__init__(decoder)
        self.right = right

    def forward(self, *step: Any) -> torch.Tensor:
        logits = super().forward(*step)
        positions, rows = step[1].tolist(), step[5].tolist()
        for index, row in enumerate(rows):
            if positions[row] * 0x9E3779B1 % (1 << 32) >= self.right * (1 << 32):
                logits[index, 7] = 2 * RAISED
        return logits


def save_random(folder: Path, shape: dict[str, Any]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**shape, eos_token_id=0, bos_token_id=None)
    LlamaForCausalLM(config).eval().save_pretrained(folder)


def load_pair(num_tokens: int) -> tuple[LoadedModel, dict[str, list[Text]]]:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        shape = {**SMOLLM_135M, **DRAFT_SHAPE, "num_key_value_heads": 3, "head_dim": 64}
        for name, its in ((first, SMOLLM_135M), (second, shape)):
            save_random(Path(name), its)
            tokenizer = train_tokenizer(Path(name))
        texts = make_texts(tokenizer, 128, num_tokens)
        return load(EngineConfig(model=first, device="cpu", num_threads=1, speculative_model=second)), texts


def compare_taught(rounds: int, num_tokens: int) -> None:
    loaded, texts = load_pair(num_tokens)
    assert loaded.draft_decoder is not None
    teacher, part = Teacher(loaded.decoder), PartTeacher(loaded.draft_decoder, 1.0)
    chosen = [text for kind in KINDS for text in texts[kind][:4]]
    for one in (teacher, part):
        one.texts = {text.prompt[0]: [*text.prompt, *text.answer] for text in chosen}
    shares = [loaded.draft_decoder.num_weight_bytes, loaded.decoder.num_weight_bytes]
    head(f"SmolLM-135M's shape, and a draft model of {shares[0] / shares[1]:.0%} of its size, taught; decode tok/s")
    config = EngineConfig(device="cpu", num_blocks=1024, lookup_drafts=False)
    sides: dict[str, Any] = {
        "with": replace(loaded, decoder=teacher, draft_decoder=part),  # type: ignore[arg-type]  # all that is asked
        "without": replace(loaded, decoder=teacher, draft_decoder=None),  # type: ignore[arg-type]
    }
    asked = [
        Asked(text.prompt, ph.SamplingParams(max_tokens=len(text.answer), temperature=0.0, ignore_eos=True))
        for text in chosen
    ]
    for right in (1.0, 0.9, 0.75, 0.5, 0.0):
        part.right = right
        for batch in (1, 8):
            engines = {side: ph.Engine.from_loaded(config, one) for side, one in sides.items()}
            group = [asked[0], asked[4]] if batch == 1 else asked
            compare(f"right at {right:.0%} of the places" + ", off" * (right == 0.0), engines, group, batch, rounds)
            for engine in engines.values():
                engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draft", type=Path, help="folder of a model that was trained before")
    parser.add_argument(
        "--mtp", type=Path, help="folder of the bundled model with a layer that `train_mtp.py` has taught"
    )
    parser.add_argument("--minutes", type=float, default=38.0, help="of training it, where there is none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--length", type=int, default=0, help="of all drafts of the bundled model; 0: as it pays")
    parser.add_argument("--tokens", type=int, default=96, help="of a taught answer")
    parser.add_argument("--skip-nano", action="store_true")
    parser.add_argument("--skip-taught", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}, 1 thread, torch {torch.__version__}, commit {commit()}; ", end="")
    print(f"medians of {options.rounds} rounds in turns")
    if not options.skip_nano:
        with tempfile.TemporaryDirectory() as name:
            draft = options.draft
            if draft is None:
                draft = Path(name)
                train_small(draft, options.minutes)
            compare_nano(None, str(draft), options.rounds, options.documents, options.length)
    if options.mtp is not None:
        compare_nano(options.mtp, "mtp", options.rounds, options.documents, options.length)
    if not options.skip_taught:
        compare_taught(options.rounds, options.tokens)


if __name__ == "__main__":
    main()
