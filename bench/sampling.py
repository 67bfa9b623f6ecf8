"""Masked sampling, side by side in one run: ours, and the usual chain of torch ops.

    python bench/sampling.py                  what the machine has: a GPU, else the CPU
    python bench/sampling.py --device cpu     one thread, CPU time

The chain is what most engines do: spread the bit mask, fill with -inf, divide, (sort, cumulate, mask for top-p,)
softmax, multinomial. On a GPU the time to read the logits once, as a sum over them, is printed beside. Logits are
random with a few likely tokens, as a language model's are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from phloem.kernels import sample
from phloem.kernels.reference_sample import allowed_tokens

Call = Callable[[], Tensor]


def make_logits(num_rows: int, vocab_size: int, device: torch.device) -> Tensor:
    logits = torch.randn(num_rows, vocab_size, device=device) * 2.5
    likely = torch.randint(0, vocab_size, (num_rows, 8), device=device)
    return logits.scatter_add(1, likely, torch.rand(num_rows, 8, device=device) * 15)


def chain(logits: Tensor, mask_table: Tensor | None, mask_rows: Tensor, temperature: float, top_p: float) -> Tensor:
    """The usual way, in torch."""
    if mask_table is not None:
        logits = logits.masked_fill(~allowed_tokens(mask_table, mask_rows, logits.shape[1]), -torch.inf)
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if top_p < 1:
        ordered, index = logits.sort(-1, descending=True)
        share = ordered.softmax(-1)
        dropped = share.cumsum(-1) - share >= top_p
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(1, index, dropped), -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1)[:, 0]


def clock(call: Call, device: torch.device) -> float:
    """Microseconds, median: CPU time of one thread, or device time of a CUDA graph."""
    call()
    if device.type == "cpu":
        times: list[float] = []
        while len(times) < 5 or (sum(times) < 0.3 and len(times) < 200):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return statistics.median(times) * 1e6
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush = torch.empty(256 << 20, dtype=torch.int8, device=device)
    times = []
    for _ in range(30):
        flush.zero_()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def run(num_rows: int, vocab_size: int, mask: float, temperature: float, top_p: float, device: torch.device) -> str:
    """One line of the table. mask: share of the vocabulary that is allowed, 1 for no mask."""
    logits = make_logits(num_rows, vocab_size, device)
    table = None
    mask_rows = torch.full((num_rows,), -1 if mask == 1 else 0, dtype=torch.int32, device=device)
    if mask < 1:
        allowed = (torch.rand(-(-vocab_size // 32) * 32, device=device) < mask).view(-1, 32).long()
        allowed[0, 0] = 1
        words = (allowed << torch.arange(32, device=device)).sum(-1)
        table = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)[None]

    def column(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((num_rows,), value, dtype=dtype, device=device)

    ids = torch.arange(num_rows, device=device)
    filters = (column(0, torch.int32), column(top_p, torch.float32), column(0, torch.float32))
    heat = column(temperature, torch.float32)
    ours = clock(lambda: sample(logits, table, mask_rows, heat, *filters, ids, ids)[0], device)
    usual = clock(lambda: chain(logits, table, mask_rows, temperature, top_p), device)
    read = clock(lambda: logits.sum(-1), device)
    what = f"rows {num_rows:3} vocab {vocab_size:6} allowed {mask:6.2%} T {temperature} top_p {top_p}"
    return f"{what:60} {ours:10.1f} {usual:10.1f} {usual / ours:7.1f} {read:10.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(parser.parse_args().device)
    torch.manual_seed(0)
    if device.type == "cpu":
        torch.set_num_threads(1)
    sizes = [(1, 2048), (32, 2048), (1, 49152), (8, 49152)]
    if device.type == "cuda":
        sizes = [(n, 128256) for n in (1, 8, 32, 128, 256)]
    place = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one thread"
    print(f"{place}, torch {torch.__version__}; microseconds per step")
    print(f"{'case':60} {'ours':>10} {'torch':>10} {'x':>7} {'read once':>10}")
    for num_rows, vocab_size in sizes:
        for mask in (1.0, 0.5, 0.001):
            for temperature, top_p in ((0.0, 1.0), (0.8, 1.0), (0.8, 0.95)):
                print(run(num_rows, vocab_size, mask, temperature, top_p, device), flush=True)


if __name__ == "__main__":
    main()
