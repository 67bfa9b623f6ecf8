"""What several threads bring to a step on the CPU, on a machine that is idle and on one that is not.

Wall-clock milliseconds of decode steps and of a prompt's prefill, medians, for each number of threads, of phloem's
decoder and of transformers' on the same weights, the two taking turns. With --busy N other processes compute all
the while: a team that waits for threads that have no processor is then slower than one thread alone. The last column is
what the number of threads brought over one thread of the same side.

    python bench/studies/cpu_threads.py [FOLDER] [--threads 1,2,4] [--busy 0,4] [--batches 1,8]
        [--prompt 256] [--tokens 24]

Without a folder a random checkpoint of SmolLM-135M's shape is made, in bf16; both sides compute in fp32.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from phloem.kernels import use_threads
from phloem.runtime.models import Decoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import SMOLLM_135M, Sequences, commit, machine


def phloem_steps(decoder: Decoder, prompts: torch.Tensor, num_tokens: int) -> Iterator[float]:
    """Seconds of the prefill, then of each decode step."""
    sequences = Sequences(decoder, prompts.shape[0], prompts.shape[1] + num_tokens)
    token_ids = prompts
    for _ in range(num_tokens):
        start = time.perf_counter()
        token_ids = sequences.extend(token_ids)
        yield time.perf_counter() - start


@torch.inference_mode()
def transformers_steps(model: Any, prompts: torch.Tensor, num_tokens: int) -> Iterator[float]:
    """The same of transformers' model with its own cache."""
    token_ids, cache = prompts, None
    for _ in range(num_tokens):
        start = time.perf_counter()
        out = model(token_ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token_ids, cache = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
        yield time.perf_counter() - start


def _burn() -> None:
    while True:
        sum(range(1000))


@contextmanager
def busy(num_processes: int) -> Iterator[None]:
    """`num_processes` other processes compute until the block ends."""
    others = [multiprocessing.get_context("spawn").Process(target=_burn, daemon=True) for _ in range(num_processes)]
    for other in others:
        other.start()
    time.sleep(1.0 if others else 0.0)
    try:
        yield
    finally:
        for other in others:
            other.kill()


def compare(ours: Decoder, theirs: Any, args: argparse.Namespace, num_busy: int) -> None:
    """A table for one number of busy processes."""
    print(f"\n{num_busy} other processes compute; milliseconds, medians of {args.rounds} rounds in turns")
    print(f"{'batch':>6}{'threads':>9}{'':>9}{'phloem':>10}{'theirs':>10}{'ratio':>8}{'to 1: ours':>12}{'theirs':>8}")
    threads = [int(number) for number in args.threads.split(",")]
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(10, ours.config.vocab_size, (batch, args.prompt), generator=torch.manual_seed(batch))
        took: dict[tuple[int, str, int], list[float]] = defaultdict(list)
        for _ in range(args.rounds):
            for number in threads:
                use_threads(number)
                sides = (phloem_steps(ours, prompts, args.tokens), transformers_steps(theirs, prompts, args.tokens))
                for side, steps in enumerate(sides):
                    torch.set_num_threads(number if side else 1)  # where the team computes, torch's would be in its way
                    prefill, *decode = steps
                    took[number, "prefill", side].append(prefill)
                    took[number, "decode", side] += decode[1:]
        for part in ("prefill", "decode"):
            for number in threads:
                a, b = (1000 * statistics.median(took[number, part, side]) for side in (0, 1))
                first = [1000 * statistics.median(took[threads[0], part, side]) for side in (0, 1)]
                print(
                    f"{batch:>6}{number:>9}{part:>9}{a:>10.1f}{b:>10.1f}{b / a:>8.2f}"
                    f"{first[0] / a:>12.2f}{first[1] / b:>8.2f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--busy", default="0,4")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    transformers.logging.disable_progress_bar()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{machine()}, {versions}, commit {commit()}; fp32")
    with ExitStack() as stack:
        folder = args.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            torch.manual_seed(0)
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM_135M)).to(torch.bfloat16)
            model.save_pretrained(folder)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        ours = Decoder.from_folder(folder, dtype=torch.float32)
        for _ in phloem_steps(ours, torch.ones(1, 64, dtype=torch.int64), 2):
            pass  # compiles what is not yet compiled
        for num_busy in map(int, args.busy.split(",")):
            with busy(num_busy):
                compare(ours, theirs, args, num_busy)


if __name__ == "__main__":
    main()
