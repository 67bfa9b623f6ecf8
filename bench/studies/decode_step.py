"""A whole decode step on a GPU against the roofline: the bytes it must read, at the bandwidth of a large copy.

    python bench/studies/decode_step.py                     the table; the small model and transformers, compiled
    python bench/studies/decode_step.py --quick             batch 1 and 32 only, at 1k
    python bench/studies/decode_step.py --weights int4 fp8  the large model alone, its layers in few bits
    python bench/studies/decode_step.py --tiny              a tiny model on the CPU: shows that the script runs

Models have the shapes of Llama-3-8B and Qwen3-0.6B and random weights in bf16. A step reads every weight once (of the
embedding only the rows looked up, unless it is the output projection too) and the keys and values of every context.

int4 has groups of 128 inputs, as GPTQ and AWQ publish them, fp8 a scale for 128, as Qwen3 and DeepSeek-V3 have it;
embedding and projection to the vocabulary stay in bf16.

    graph    the step's CUDA graph alone, by events: what the device takes
    step     plan, upload, replay and greedy choice, until the tokens are on the host: what a server pays
    launched the same without graphs
    "bits"   in deterministic mode, whose cost is the difference

Medians of many steps; the caches are far larger than the L2. For batch 1 of the small model: tokens per second of both
over the same number of tokens, prefill apart, in turns.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from random_decoder import LLAMA_8B, QWEN3_0_6B, TINY, WEIGHTS, random_decoder

from phloem.runtime.execute.batch import Batch
from phloem.runtime.execute.cuda_graphs import CudaRecorder, Recorder
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.model_runner import ModelRunner
from phloem.runtime.models import Decoder

BLOCK_SIZE = 16
CASES = {
    "8B": [
        (1, 1024),
        (1, 8192),
        (32, 1024),
        (32, 2048),
        (32, 8192),
        (128, 1024),
        (128, 2048),
        (128, 4096),
        (128, 8192),
    ],
    "0.6B": [(1, 1024), (1, 8192), (32, 1024), (128, 1024)],
}


class Decoding:
    """Requests of equal length that decode greedily, in blocks that lie anywhere."""

    def __init__(
        self,
        decoder: Decoder,
        recorder: Recorder | None,
        batch: int,
        context_len: int,
        room: int,
        *,
        deterministic: bool = False,
    ) -> None:
        config = decoder.config
        width = -(-(context_len + room) // BLOCK_SIZE)
        self.cache = KVCache(
            shapes=config.kv_shapes(),
            num_blocks=batch * width,
            block_size=BLOCK_SIZE,
            dtype=decoder.dtype,
            device=decoder.device,
        )
        for tensor in (*self.cache.keys, *self.cache.values):
            tensor.normal_()
        self.tables = np.random.default_rng(0).permutation(batch * width).reshape(batch, width).astype(np.int32)
        self.runner = ModelRunner(decoder, self.cache, decoder.device, recorder, deterministic=deterministic)
        self.token_ids = np.zeros(batch, np.int64)
        self.context_len = context_len

    def step(self) -> None:
        """Decodes one token of each request; waits until they are on the host."""
        position, batch = self.context_len, len(self.tables)
        self.context_len += 1
        slots = self.tables[:, position // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + position % BLOCK_SIZE
        rows = np.arange(batch + 1)
        lens = np.full(batch, self.context_len, np.int32)
        positions = np.full(batch, position, np.int64)
        starts = rows.astype(np.int32)
        step = Batch([], self.token_ids, positions, slots, starts, lens, self.tables, [1] * batch, rows[:-1])
        self.token_ids = self.runner.forward(step).argmax(-1).cpu().numpy()


class TimingRecorder:
    """Captures as `CudaRecorder` does, and times replays on the device.

    Attributes:
        times: whether replays are timed now. The device is kept busy before each, or it would wait for the launch.
    """

    def __init__(self) -> None:
        self._recorder = CudaRecorder(torch.device("cuda"))
        self.times = False
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def record(self, step: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        replay = self._recorder.record(step)

        def timed() -> torch.Tensor:
            if not self.times:
                return replay()
            torch.cuda._sleep(200_000)  # cycles: a tenth of a millisecond
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            output = replay()
            end.record()
            self.events.append((start, end))
            return output

        return timed


def median_step(decoding: Decoding, count: int) -> float:
    """Microseconds of a step on the wall clock, after a few to warm up."""
    times = []
    for index in range(count + 4):
        begin = time.perf_counter()
        decoding.step()
        if index >= 4:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def copy_bandwidth() -> float:
    """Bytes per microsecond, read and written, of a 4 GiB copy; the best of ten."""
    source = torch.empty(4 << 30, dtype=torch.int8, device="cuda")
    target, times = torch.empty_like(source), []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return 2 * source.numel() / min(times)


def bytes_of_step(decoder: Decoder, batch: int, context_len: int) -> int:
    """What a step has to read: weights and KV. Activations and what is written are left out."""
    config = decoder.config
    weights = decoder.num_weight_bytes
    if not config.tie_word_embeddings:
        weights -= (config.vocab_size - batch) * config.hidden_size * decoder.dtype.itemsize
    return weights + batch * context_len * bytes_of_token(decoder)


def bytes_of_token(decoder: Decoder) -> int:
    """Keys and values of one token."""
    config = decoder.config
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * decoder.dtype.itemsize


def report(
    name: str,
    decoder: Decoder,
    cases: list[tuple[int, int]],
    bandwidth: float,
    count: int,
    *,
    deterministic: bool = False,
) -> None:
    print(
        f"{'':10} {'batch':>5} {'context':>8} {'roofline':>9} {'graph':>9} {'step':>9} {'launched':>9}"
        "  roofline / graph"
    )
    for batch, context_len in cases:
        floor = bytes_of_step(decoder, batch, context_len) / bandwidth
        if batch * bytes_of_token(decoder) * (context_len + 2 * count + 32) > 0.95 * torch.cuda.mem_get_info()[0]:
            print(f"{name:10} {batch:5} {context_len:8} {floor:9.0f}  does not fit the device's memory")
            continue
        recorder = TimingRecorder()
        room = 2 * (count + 8)
        decoding = Decoding(decoder, recorder, batch, context_len, room, deterministic=deterministic)
        step = median_step(decoding, count)
        recorder.times = True
        median_step(decoding, count)
        graph = statistics.median(start.elapsed_time(end) for start, end in recorder.events[-count:]) * 1e3
        del decoding, recorder
        gc.collect()  # a runner and its graphs hold each other, and with them the KV
        launched = median_step(Decoding(decoder, None, batch, context_len, 24, deterministic=deterministic), 16)
        times = " ".join(f"{t:9.0f}" for t in (floor, graph, step, launched))
        print(f"{name:10} {batch:5} {context_len:8} {times}  {100 * floor / graph:5.1f} %", flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def beside_transformers(decoder: Decoder, values: dict[str, Any], context_len: int, count: int) -> None:
    """Tokens per second at batch 1, ours and transformers' `generate` with a static cache, compiled."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    options = {k: v for k, v in values.items() if k != "architectures"}
    model = Qwen3ForCausalLM(Qwen3Config(**options)).to("cuda", torch.bfloat16).eval()
    prompt = torch.randint(0, values["vocab_size"], (1, context_len), device="cuda")

    def generate(num_tokens: int) -> float:
        config = GenerationConfig(
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            cache_implementation="static",
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        begin = time.perf_counter()
        model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    def prefill() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.inference_mode():
            model(prompt, logits_to_keep=1)
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    def theirs() -> float:  # not generate(1): a cache of another length, for which it would compile again
        return (count - 1) / (generate(count) - prefill())

    def ours() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            decoding.step()
        return count / (time.perf_counter() - begin)

    repeats = 5
    decoding = Decoding(decoder, CudaRecorder(torch.device("cuda")), 1, context_len, (repeats + 2) * count)
    for _ in range(2):  # compiles, captures
        theirs()
        ours()
    ratios = []
    for _ in range(repeats):
        a, b = ours(), theirs()
        ratios.append(a / b)
        print(f"0.6B, batch 1, {context_len} keys: {a:7.1f} tokens/s, transformers compiled {b:7.1f}: {a / b:.2f} x")
    print(f"median {statistics.median(ratios):.2f} x")


def run_tiny() -> None:
    """Every part that a CPU can run, on numbers too small to mean anything."""
    for weights in WEIGHTS:
        decoder = random_decoder(TINY, torch.device("cpu"), torch.float32, weights=weights)
        decoding = Decoding(decoder, None, 2, 40, 16)
        took = median_step(decoding, 8)
        size = bytes_of_step(decoder, 2, 40)
        print(
            f"tiny model on the CPU, {weights}, batch 2, 40 keys: {took:.0f} us a step, {size} bytes; no roofline here"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few cases")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, help="the large model alone, in these")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU, to try the script")
    parser.add_argument("--count", type=int, default=100, help="steps per case")
    arguments = parser.parse_args()
    if arguments.tiny:
        run_tiny()
        return
    if not torch.cuda.is_available():
        sys.exit("bench/studies/decode_step.py measures CUDA graphs and found no CUDA device; --tiny tries it on a CPU")
    torch.manual_seed(0)
    device, bandwidth = torch.device("cuda"), copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {bandwidth / 1e6:.2f} TB/s; microseconds")
    for weights in arguments.weights or ():
        decoder = random_decoder(LLAMA_8B, device, torch.bfloat16, weights=weights)
        cases = [case for case in CASES["8B"] if case[1] == 1024]
        report(f"8B, {weights}", decoder, cases, bandwidth, arguments.count)
        del decoder
        gc.collect()
        torch.cuda.empty_cache()
    for name, values in () if arguments.weights else (("8B", LLAMA_8B), ("0.6B", QWEN3_0_6B)):
        decoder = random_decoder(values, device, torch.bfloat16)
        cases = [case for case in CASES[name] if not arguments.quick or (case[0] < 128 and case[1] == 1024)]
        report(name, decoder, cases, bandwidth, arguments.count)
        if name == "0.6B":
            try:
                beside_transformers(decoder, values, 1024, 128)
            except Exception as error:  # not installed, another version, no C compiler: our own figures stand
                print(f"transformers could not be timed: {type(error).__name__}: {str(error).splitlines()[:1]}")
        del decoder
        gc.collect()
        torch.cuda.empty_cache()
        decoder = random_decoder(values, device, torch.bfloat16, deterministic=True)
        same_bits = [case for case in cases if case[1] == 1024]
        report(f"{name}, bits", decoder, same_bits, bandwidth, arguments.count, deterministic=True)
        del decoder
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
