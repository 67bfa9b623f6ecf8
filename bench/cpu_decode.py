"""Tokens per second of the bare decoder on the CPU, compared with transformers on the same weights in the same run.

No engine, no cache, no sampling: prefill once, then greedy decode steps. Per CPU-second, so that other load on the
machine counts little; best of several repeats, the two sides taking turns. With --smollm random checkpoints of
SmolLM-135M's shape are made in a temporary folder, one with fp32 weights (540 MB) and one with bf16 weights, as the
real one is published; both sides compute both in fp32. With --latents the checkpoint has four layers of Youtu-LLM-2B's
shape, whose attention is over latents. Greedy tokens must be equal, or the script says so. "apart": the same op by op,
each called from Python, instead of all layers but the last in one compiled call.

    OMP_NUM_THREADS=1 python bench/cpu_decode.py [--smollm | --latents] [--batches 1,8,64] [--prompt 32] [--tokens 24]
    OMP_NUM_THREADS=1 python bench/cpu_decode.py --shared 2048 [--requests 64]

--shared: decode steps of that shape for many requests on one prefix, with the prefix read once for all of them and
with every request reading it for itself (from the same blocks); the whole step, and its attention alone; fp32 and int8
weights. Logits must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import logging
import platform
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phloem.kernels import ops
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.models import Decoder, resolve_model

BLOCK_SIZE = 16
SMOLLM_135M = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
YOUTU_4_LAYERS = {
    "vocab_size": 8192,  # instead of 128,256, most of whose work would be the logits'
    "num_hidden_layers": 4,
    "max_position_embeddings": 2048,
    "eos_token_id": None,
    "bos_token_id": None,
}


class Sequences:
    """Equally long sequences over a paged cache."""

    def __init__(self, decoder: Decoder, batch: int, max_len: int, kv_dtype: torch.dtype | None = None) -> None:
        config = decoder.config
        blocks_each = -(-max_len // BLOCK_SIZE)
        self.decoder, self.batch, self.len = decoder, batch, 0
        self.forward = decoder.forward
        self.share_prefixes = True
        self.tables = np.arange(batch * blocks_each, dtype=np.int32).reshape(batch, blocks_each)
        self.kv_cache = KVCache(
            shapes=config.kv_shapes(),
            num_blocks=batch * blocks_each,
            block_size=BLOCK_SIZE,
            dtype=kv_dtype or decoder.dtype,
            device=decoder.device,
        )

    def extend(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Appends `[batch, n]` tokens to the sequences; the greedy next token of each, `[batch, 1]`."""
        config, count = self.decoder.config, token_ids.shape[1]
        positions = np.arange(self.len, self.len + count)
        self.len += count
        slots = self.tables[:, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
        plan = ops.plan_attention(
            np.arange(0, self.batch * count + 1, count, dtype=np.int32),
            np.full(self.batch, self.len, np.int32),
            self.tables,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=BLOCK_SIZE,
            device="cpu",
            share_prefixes=self.share_prefixes,
        )
        logits = self.forward(
            token_ids.flatten(),
            torch.from_numpy(np.tile(positions, self.batch)),
            self.kv_cache,
            plan,
            torch.from_numpy(slots.reshape(-1)),
            torch.arange(self.batch) * count + count - 1,
        )
        return logits.argmax(-1, keepdim=True)


def run_phloem(decoder: Decoder, prompts: torch.Tensor, num_tokens: int) -> tuple[float, float, torch.Tensor]:
    """(CPU seconds of prefill, of decode, tokens `[batch, num_tokens]`)."""
    sequences = Sequences(decoder, prompts.shape[0], prompts.shape[1] + num_tokens)
    start = time.process_time()
    token_ids = [sequences.extend(prompts)]
    prefilled = time.process_time()
    while len(token_ids) < num_tokens:
        token_ids.append(sequences.extend(token_ids[-1]))
    return prefilled - start, time.process_time() - prefilled, torch.cat(token_ids, 1)


def run_apart(decoder: Decoder, prompts: torch.Tensor, num_tokens: int) -> tuple[float, float, torch.Tensor]:
    """`run_phloem` with layers op by op."""
    together, decoder._plain = decoder._plain, None
    try:
        return run_phloem(decoder, prompts, num_tokens)
    finally:
        decoder._plain = together


def run_transformers(model: Any, prompts: torch.Tensor, num_tokens: int) -> tuple[float, float, torch.Tensor]:
    """The same with transformers' own model and cache, without the overhead of `generate`."""
    start = time.process_time()
    with torch.inference_mode():
        out = model(prompts, use_cache=True, logits_to_keep=1)
        token_ids = [out.logits[:, -1].argmax(-1, keepdim=True)]
        prefilled = time.process_time()
        while len(token_ids) < num_tokens:
            out = model(token_ids[-1], past_key_values=out.past_key_values, use_cache=True)
            token_ids.append(out.logits[:, -1].argmax(-1, keepdim=True))
    return prefilled - start, time.process_time() - prefilled, torch.cat(token_ids, 1)


def best_of(run: Callable[[], tuple[float, float, torch.Tensor]], repeats: int) -> tuple[float, float, torch.Tensor]:
    return best([run() for _ in range(repeats)])


def best(runs: list[tuple[float, float, torch.Tensor]]) -> tuple[float, float, torch.Tensor]:
    return min(r[0] for r in runs), min(r[1] for r in runs), runs[0][2]


def compare(name: str, folder: Path, args: argparse.Namespace) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = Decoder.from_folder(folder, dtype=torch.float32)
    print(f"\n{name}: {ours.num_weight_bytes / 1e6:.1f} MB of weights, prompt {args.prompt}, {args.tokens} tokens")
    print(f"{'batch':>6}{'prefill tok/s':>24}{'decode tok/s':>34}{'ratio':>8}{'apart':>10}  greedy")
    print(f"{'':>6}{'phloem':>12}{'theirs':>12}{'phloem':>17}{'theirs':>17}")
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(10, ours.config.vocab_size, (batch, args.prompt), generator=torch.manual_seed(batch))
        repeats = max(2, args.repeats // batch)
        run_phloem(ours, prompts, 2)  # compiles what is not yet compiled
        runs = [
            (
                run_phloem(ours, prompts, args.tokens),
                run_transformers(theirs, prompts, args.tokens),
                run_apart(ours, prompts, args.tokens),
            )
            for _ in range(repeats)
        ]
        a, b, apart = (best([sides[side] for sides in runs]) for side in (0, 1, 2))
        assert torch.equal(a[2], apart[2])
        prefill = [batch * args.prompt / r[0] for r in (a, b)]
        decode = [batch * (args.tokens - 1) / r[1] for r in (a, b, apart)]
        same = "equal" if torch.equal(a[2], b[2]) else f"{(a[2] == b[2]).float().mean():.1%} equal"
        print(
            f"{batch:>6}{prefill[0]:>12,.0f}{prefill[1]:>12,.0f}{decode[0]:>17,.1f}{decode[1]:>17,.1f}"
            f"{decode[0] / decode[1]:>8.2f}{decode[2]:>10,.1f}  {same}",
            flush=True,
        )


@contextmanager
def attention_timed() -> Iterator[list[float]]:
    """CPU seconds of every call of attention until the block ends."""
    attention, spent = ops.attention, []

    def timed(*args: Any, **kwargs: Any) -> torch.Tensor:
        start = time.process_time()
        try:
            return attention(*args, **kwargs)
        finally:
            spent.append(time.process_time() - start)

    ops.attention = timed
    try:
        yield spent
    finally:
        ops.attention = attention


def compare_sharing(args: argparse.Namespace) -> None:
    """Steps of `--requests` requests after a prefix of `--shared` tokens, read once or by each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**SMOLLM_135M)).save_pretrained(folder)
        decoders = {
            name: Decoder.from_folder(
                folder,
                dtype=torch.float32,
                quantise="int8" if name == "int8" else "none",
                max_positions=args.shared + 64,
            )
            for name in ("fp32", "int8")
        }
    print(
        f"\n{args.requests} requests on {args.shared} shared tokens, 135M shape: seconds of CPU a step, best of several"
    )
    print(f"{'weights':>8}{'':>11}{'flat':>10}{'shared':>10}{'ratio':>8}  logits")
    for name, decoder in decoders.items():
        sequences = Sequences(decoder, args.requests, args.shared + 64)
        common = args.shared // BLOCK_SIZE
        sequences.tables[:, :common] = sequences.tables[0, :common]
        for tensor in (*sequences.kv_cache.keys, *sequences.kv_cache.values):
            tensor[:common].normal_()
        logits: list[torch.Tensor] = []
        sequences.forward = lambda *a, f=decoder.forward, kept=logits: kept.append(f(*a)) or kept[-1]  # type: ignore[misc]  # defaults bind
        token_ids = torch.randint(10, decoder.config.vocab_size, (args.requests, 1))
        times: dict[tuple[str, bool], list[float]] = defaultdict(list)
        stack = decoder.stack
        for step in range(4 * args.repeats):
            share = sequences.share_prefixes = step % 2 == 1
            part = ("step", "attention")[step // 2 % 2]
            decoder.stack = stack if part == "step" else None  # op by op, to see attention alone
            sequences.len = args.shared
            with attention_timed() as spent:
                start = time.process_time()
                sequences.extend(token_ids)
                took = time.process_time() - start
            times[part, share].append(took if part == "step" else sum(spent))
        same = "equal" if torch.equal(logits[-2], logits[-1]) else "NOT equal"
        for part in ("step", "attention"):
            flat, shared = (min(times[part, share]) for share in (False, True))
            print(f"{name:>8}{part:>11}{flat:>10.3f}{shared:>10.3f}{flat / shared:>8.2f}  {same}", flush=True)


def machine() -> str:
    """The processor's name where the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm", action="store_true")
    parser.add_argument("--latents", action="store_true")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--shared", type=int, default=0, help="length of a prefix that all requests share")
    parser.add_argument("--requests", type=int, default=64)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    transformers.logging.disable_progress_bar()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    place = f"{machine()}, {torch.get_num_threads()} thread(s), {versions}, commit {commit()}"
    print(f"{place}; tokens per CPU-second, fp32")
    if args.shared:
        compare_sharing(args)
        return
    if args.latents:
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(0)
            transformers.YoutuForCausalLM(transformers.YoutuConfig(**YOUTU_4_LAYERS)).save_pretrained(folder)
            compare("Four layers of Youtu-LLM-2B's shape", Path(folder), args)
        return
    compare("nano", resolve_model("nano"), args)
    if args.smollm:
        for dtype in (torch.float32, torch.bfloat16):
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(0)
                model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM_135M))
                model.to(dtype).save_pretrained(folder)
                del model
                compare(f"SmolLM-135M's shape, {str(dtype).removeprefix('torch.')} checkpoint", Path(folder), args)


if __name__ == "__main__":
    main()
