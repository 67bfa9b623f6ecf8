"""The same GGUF file here and in llama.cpp: load time, tokens per CPU-second on one thread, perplexity on one text.

    OMP_NUM_THREADS=1 python bench/studies/gguf_files.py model.gguf [--batches 1,8] [--prompt 32] [--tokens 32]
        [--repeats 5]
    OMP_NUM_THREADS=1 python bench/studies/gguf_files.py --random Q4_K_M,Q8_0

`--random` writes a random Llama of 250 million numbers and lets llama.cpp quantise it: K types need rows of whole
blocks of 256, which small published models have not; only its speed means anything.

Needs `llama_cpp` and `gguf`; of the first the C interface alone is used, so that nothing of Python's stands in its way.
Columns take turns, best of several repeats. "exact" leaves inputs in fp32, "16" rounds them to 16 bits, by groups
(`quantise="int8"`); llama.cpp rounds them to 8. The text is this repository's own documentation, in pieces of 512
tokens, every token after the first of a piece predicted from those before it.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from cpu_int8 import LlamaCpp, all_logits

from phloem.kernels.linear_weight import Quantise
from phloem.runtime.models import Decoder
from phloem.runtime.tokenizer.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import machine, run_phloem

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
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"the process has had {most:.0f} MB at most, libraries and the mapped file included")
    return decoders


def write_random(path: Path) -> None:
    """A random Llama in F16, without a tokenizer."""
    import gguf

    hidden, inner, layers, heads, kv_heads, vocab = 1024, 2816, 16, 16, 8, 32_000
    rng, kv = np.random.default_rng(0), 1024 // 16 * 8
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(vocab)
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_tokenizer_model("no_vocab")
    shapes = {"token_embd": (vocab, hidden), "output": (vocab, hidden)}
    each = {"attn_q": (hidden, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden), "attn_output": (hidden, hidden)}
    each |= {"ffn_gate": (inner, hidden), "ffn_up": (inner, hidden), "ffn_down": (hidden, inner)}
    norms = ["output_norm"]
    for index in range(layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in each.items()}
        norms += [f"blk.{index}.{name}" for name in ("attn_norm", "ffn_norm")]
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) * 0.02).astype(np.float16))
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised(plain: Path, form: str) -> Path:
    """The file in another form, by llama.cpp's own hand."""
    import llama_cpp

    path, params = plain.with_name(f"{form}.gguf"), llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{form}"), 1
    if llama_cpp.llama_model_quantize(str(plain).encode(), str(path).encode(), ctypes.byref(params)):
        raise RuntimeError(f"llama.cpp did not make {form}")
    return path


def pieces_of_text(path: Path, num_tokens: int) -> list[list[int]]:
    docs = Path(__file__).resolve().parents[2] / "docs"
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
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--random", default="", help="types, of a random model instead of the file")
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
    if args.file is not None:
        decoders = load_all(args.file)
        report_speed(args.file, decoders, args)
        if args.text:
            report_quality(args.file, decoders, args.text)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "F16.gguf"
        forms = [form for form in args.random.split(",") if form]
        if forms:
            log = llama_cpp.llama_log_callback(lambda *_: None)  # held, for the library calls it
            llama_cpp.llama_log_set(log, ctypes.c_void_p())
            write_random(plain)
        for path in [quantised(plain, form) for form in forms]:  # all before the library gets another log
            report_speed(path, load_all(path), args)


if __name__ == "__main__":
    main()
