"""Tokens per second of JSON extraction under one shared system prompt: phloem with and without prefix cache and
jump-forward, and transformers' `generate` on the same prompts, alternating in one run.

    python bench/prefix_and_jump.py [--requests 48] [--prefix-tokens 1000] [--rounds 3] [--threads 1] [--running 256]
                                    [--model FOLDER]

Every engine answers the same prompts greedily. transformers has no JSON constraint, so it is asked for exactly as many
new tokens as phloem generated for the prompt; it runs one prompt at a time and in padded batches, and the better of the
two counts. Times are wall-clock medians over the rounds; each phloem round starts with an empty cache.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import phloem as ph
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from nano_text import SYSTEM_PROMPT, documents  # noqa: E402

CONFIGURATIONS = {
    "phloem": {"prefix_cache": True, "jump": "verified"},
    "phloem, cache off": {"prefix_cache": False, "jump": "verified"},
    "phloem, jump off": {"prefix_cache": True, "jump": "off", "lookup_drafts": False},
    "phloem, both off": {"prefix_cache": False, "jump": "off", "lookup_drafts": False},
}


def build_prompts(tokenizer: Tokenizer, count: int, prefix_len: int) -> tuple[list[list[int]], list[dict[str, object]]]:
    """`count` chats over one system prompt of about `prefix_len` tokens, and the schema that each answer follows."""
    system = SYSTEM_PROMPT
    for document in documents(seed=1, count=10_000):
        if len(tokenizer.encode(system)) >= prefix_len:
            break
        system += "\n\n" + document.text
    prompts, schemas = [], []
    for document in documents(seed=2, count=count):
        question = f"{document.text}\n\nExtract the {document.kind.name} as JSON."
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        prompts.append(tokenizer.apply_chat_template(messages))
        schemas.append(document.kind.schema)
    return prompts, schemas


def run_phloem(engine: ph.Engine, prompts: list[list[int]], schemas: list[dict[str, object]]) -> list[ph.Completion]:
    """All requests at once; answers in order."""
    engine.flush_cache()
    params = ph.SamplingParams(max_tokens=192, temperature=0.0)
    order = [engine.core.add(p, params, ph.json_schema(s)) for p, s in zip(prompts, schemas, strict=True)]
    deltas: dict[str, list[ph.Delta]] = {request_id: [] for request_id in order}
    while engine.core.has_work:
        for delta in engine.core.step():
            deltas[delta.request_id].append(delta)
    return [deltas[request_id] for request_id in order]


def transformers_runner(
    folder: Path, num_threads: int, batch_size: int, lengths: list[int], prompts: list[list[int]]
) -> Callable[[], None]:
    """A call that generates `lengths[i]` tokens for prompt i, `batch_size` prompts at a time, left-padded."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def run() -> None:
        torch.set_num_threads(num_threads)
        for first in range(0, len(prompts), batch_size):
            group = prompts[first : first + batch_size]
            width = max(map(len, group))
            ids = torch.tensor([[0] * (width - len(p)) + p for p in group])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in group])
            num_new = max(lengths[first : first + batch_size])
            with torch.inference_mode():
                model.generate(
                    ids,
                    attention_mask=mask,
                    do_sample=False,
                    min_new_tokens=num_new,
                    max_new_tokens=num_new,
                    pad_token_id=0,
                )
        torch.set_num_threads(1)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--prefix-tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--running", type=int, default=256, help="most requests that phloem computes in one step")
    parser.add_argument("--skip-transformers", action="store_true")
    parser.add_argument("--model", default="nano", help="a checkpoint folder (default: the bundled model)")
    options = parser.parse_args()
    memory = None if options.model == "nano" else 2 << 30  # of KV, for all prompts at once without a cache
    engines = {
        name: ph.Engine(
            options.model,
            max_running_requests=options.running,
            kv_memory_bytes=memory,
            num_threads=options.threads,
            **settings,
        )
        for name, settings in CONFIGURATIONS.items()
    }
    prompts, schemas = build_prompts(engines["phloem"].tokenizer, options.requests, options.prefix_tokens)
    runs: dict[str, Callable[[], object]] = {}
    lengths: list[int] = []
    counts: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for name, engine in engines.items():
        before = engine.statistics()
        answers = run_phloem(engine, prompts, schemas)  # also the warm-up
        after = engine.statistics()
        texts[name] = ["".join(delta.text for delta in deltas) for deltas in answers]
        lengths = [sum(len(delta.token_ids) for delta in deltas) for deltas in answers]
        usage = [deltas[-1].usage for deltas in answers]
        counts[name] = (
            f"{sum(u.prompt_tokens for u in usage):>8}{sum(u.cached_tokens for u in usage):>9}"
            f"{sum(u.jumped_tokens for u in usage):>8}{sum(u.sampled_tokens for u in usage):>9}"
            f"{after.num_forwards - before.num_forwards:>10}"
        )
        runs[name] = lambda engine=engine: run_phloem(engine, prompts, schemas)
    assert all(answers == texts["phloem"] for answers in texts.values()), "a switch changed the text"
    if not options.skip_transformers:
        folder = resolve_model(options.model)
        runs["transformers, one by one"] = transformers_runner(folder, options.threads, 1, lengths, prompts)
        runs["transformers, batches of 16"] = transformers_runner(folder, options.threads, 16, lengths, prompts)

    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)

    total = sum(lengths)
    best = total / statistics.median(times["phloem"])
    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    print(f"{len(prompts)} requests, {total} tokens generated, prompts of {len(prompts[0])} tokens and so on\n")
    print(f"{'':28}{'tok/s':>8}{'ratio':>8}{'prompt':>8}{'cached':>9}{'jumped':>8}{'sampled':>9}{'forwards':>10}")
    for name, seconds in times.items():
        rate = total / statistics.median(seconds)
        print(f"{name:28}{rate:>8.0f}{best / rate:>8.2f}{counts.get(name, '')}")


if __name__ == "__main__":
    main()
