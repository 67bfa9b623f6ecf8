"""The same GGUF file here and in llama.cpp: load time, tokens per CPU-second on one thread, perplexity on one text.

    OMP_NUM_THREADS=1 python bench/gguf_files.py model.gguf [--batches 1,8] [--prompt 32] [--tokens 32] [--repeats 5]

Needs `llama_cpp`; of it the C interface alone is used, so that nothing of Python's stands in its way. Columns take
turns, best of several repeats. "exact" leaves inputs in fp32, "16" rounds them to 16 bits, by groups
(`quantise="int8"`); llama.cpp rounds them to 8. The text is this repository's own documentation, in pieces of 512
tokens, every token after the first of a piece predicted from those before it.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from cpu_decode import machine, run_phloem
from cpu_int8 import LlamaCpp, all_logits

from phloem.kernels.linear_weight import Quantise
from phloem.runtime.models import Decoder
from phloem.runtime.tokenizer.tokenizer import Tokenizer

PIECE = 512
COLUMNS: dict[str, Quantise] = {"exact": "none", "16": "int8"}


def load_all(path: Path) -> dict[str, Decoder]:
    decoders = {}
    print(f"{path.name}, {path.stat().st_size / 1e6:.0f} MB")
    Decoder.from_folder(path, dtype=torch.float32)  # compiles what is not yet compiled
    for label, quantise in COLUMNS.items():
        start = time.perf_counter()
        decoders[label] = Decoder.from_folder(path, dtype=torch.float32, quantise=quantise)
        size, seconds = decoders[label].num_weight_bytes / 1e6, time.perf_counter() - start
        print(f"{label:>10}: weights {size:.0f} MB in {seconds:.2f} s")
    start = time.perf_counter()
    Tokenizer.from_folder(path)
    seconds, most = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f" tokenizer: {seconds:.2f} s; the process has had {most:.0f} MB at most, libraries included")
    return decoders


def pieces_of_text(path: Path, num_tokens: int) -> list[list[int]]:
    docs = Path(__file__).resolve().parent.parent / "docs"
    text = "\n\n".join(file.read_text(encoding="utf-8") for file in sorted(docs.glob("*.md")))
    token_ids = Tokenizer.from_folder(path).encode(text)[:num_tokens]
    return [token_ids[start : start + PIECE] for start in range(0, len(token_ids) - 1, PIECE)]


def report_quality(path: Path, decoders: dict[str, Decoder], num_tokens: int) -> None:
    pieces = pieces_of_text(path, num_tokens)
    vocab_size = next(iter(decoders.values())).config.vocab_size
    peer = LlamaCpp(path, 1, PIECE, vocab_size)
    rows: dict[str, Callable[[list[int]], torch.Tensor]] = {
        label: lambda ids, d=d: all_logits(d, torch.tensor([ids]), torch.float32)  # type: ignore[misc]  # defaults bind
        for label, d in decoders.items()
    }
    rows["llama.cpp"] = peer.all_logits
    losses: dict[str, list[torch.Tensor]] = {label: [] for label in rows}
    tops: dict[str, list[torch.Tensor]] = {label: [] for label in rows}
    for ids in pieces:
        for label, logits_of in rows.items():
            logits = logits_of(ids)
            losses[label].append(F.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none"))
            tops[label].append(logits.argmax(-1))
    peer.close()
    print(f"perplexity of {sum(map(len, pieces)):,} tokens in pieces of {PIECE}")
    first = torch.cat(tops["exact"])
    for label in rows:
        found = math.exp(float(torch.cat(losses[label]).mean()))
        same = float((torch.cat(tops[label]) == first).float().mean())
        print(f"{label:>10}{found:>12.4f}{same:>10.2%} of the most likely tokens are those of exact inputs", flush=True)


def report_speed(path: Path, decoders: dict[str, Decoder], args: argparse.Namespace) -> None:
    print(f"prompt {args.prompt}, {args.tokens} tokens; tokens per CPU-second, one thread")
    print(f"{'batch':>6}  {'':10}{'prefill':>10}{'decode':>10}{'this / llama.cpp':>22}")
    vocab_size = next(iter(decoders.values())).config.vocab_size
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(10, vocab_size, (batch, args.prompt), generator=torch.manual_seed(batch))
        peer = LlamaCpp(path, batch, args.prompt + args.tokens, vocab_size)
        runs = {label: lambda d=d, p=prompts: run_phloem(d, p, args.tokens) for label, d in decoders.items()}  # type: ignore[misc]
        runs["llama.cpp"] = lambda m=peer, p=prompts: m.run(p, args.tokens)  # type: ignore[misc]
        best = {label: run()[:2] for label, run in runs.items()}
        for _ in range(args.repeats):
            for label, run in runs.items():
                best[label] = tuple(np.minimum(best[label], run()[:2]))
        peer.close()
        for label, (prefill, decode) in best.items():
            speeds = f"{batch * args.prompt / prefill:>10,.0f}{batch * (args.tokens - 1) / decode:>10,.1f}"
            ratios = f"{best['llama.cpp'][0] / prefill:>14.2f}{best['llama.cpp'][1] / decode:>8.2f}"
            print(f"{batch:>6}  {label:10}{speeds}{ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--text", type=int, default=20_000, help="tokens for the perplexity; 0: only the speed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import llama_cpp

    print(f"{machine()}, one thread, torch {torch.__version__}, llama_cpp {llama_cpp.__version__}")
    decoders = load_all(args.file)
    report_speed(args.file, decoders, args)
    if args.text:
        report_quality(args.file, decoders, args.text)


if __name__ == "__main__":
    main()
