"""Masked sampling, side by side in one run: ours, the usual chain of torch ops, FlashInfer if it is installed.

    python bench/studies/sampling.py                  what the machine has: a GPU, else the CPU
    python bench/studies/sampling.py --device cpu     one thread, CPU time
    python bench/studies/sampling.py --quick          few rows only

The chain is what most engines do: spread the bit mask, fill with -inf, divide, (sort, cumulate, mask for top-k and
top-p,) softmax, a draw by exponential noise. FlashInfer is given logits that torch has masked and divided, which is
timed. Further columns: the time to read the logits once (the faster of torch's sum and maximum over them), ours as a
multiple of it, the bytes of logits, masks and summaries that ours reads, as a multiple of the logits, and how often it
looks at some groups again (`kernels/triton/sample.py`). On a GPU everything runs from CUDA graphs, with the cache
cleared in between.

Logits are random with a few likely tokens, as a language model's are.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from phloem.kernels import LogitEdits
from phloem.kernels.ops import SamplingRows, sample
from phloem.kernels.plain.sample import GROUP, allowed_tokens, thresholds

Call = Callable[[], object]
HAS_FLASHINFER = importlib.util.find_spec("flashinfer") is not None
HEAD = f"{'case':72}      ours     torch      x  flashinf     read ours/read  bytes looks"


@dataclass(frozen=True)
class Case:
    """One line. mask: share of the vocabulary that is allowed, 1 for no mask."""

    num_rows: int
    vocab_size: int
    mask: float
    temperature: float
    top_k: int
    top_p: float
    extra: str  # "", "penalties" or "logprobs"

    def __str__(self) -> str:
        filters = f"top_k {self.top_k} top_p {self.top_p}"
        what = f"rows {self.num_rows:3} vocab {self.vocab_size:6} allowed {self.mask:7.2%} T {self.temperature}"
        return f"{what} {filters} {self.extra}"


def make_logits(num_rows: int, vocab_size: int, device: torch.device) -> Tensor:
    logits = torch.randn(num_rows, vocab_size, device=device) * 2.5
    likely = torch.randint(0, vocab_size, (num_rows, 8), device=device)
    return logits.scatter_add(1, likely, torch.rand(num_rows, 8, device=device) * 15)


def make_mask(case: Case, device: torch.device) -> tuple[Tensor | None, Tensor]:
    """The mask table and the row of each row."""
    rows = torch.full((case.num_rows,), -1 if case.mask == 1 else 0, dtype=torch.int32, device=device)
    if case.mask == 1:
        return None, rows
    allowed = (torch.rand(-(-case.vocab_size // 32) * 32, device=device) < case.mask).view(-1, 32).long()
    allowed[0, 0] = 1
    words = (allowed << torch.arange(32, device=device)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)[None], rows


def make_edits(case: Case, device: torch.device) -> LogitEdits:
    """Every row has seen 500 tokens."""
    counts = torch.zeros(case.num_rows, case.vocab_size, dtype=torch.int16, device=device)
    seen = torch.randint(0, case.vocab_size, (case.num_rows, 500), device=device)
    counts.scatter_(1, seen, torch.ones_like(seen, dtype=torch.int16))
    rows = torch.arange(case.num_rows, dtype=torch.int32, device=device)
    column = torch.full((case.num_rows,), 0.5, device=device)
    nothing = torch.zeros(case.num_rows, 0, dtype=torch.int32, device=device)
    return LogitEdits(counts, rows, column + 0.6, column, column, nothing, torch.zeros(0, 0, device=device), rows)


def masked(case: Case, logits: Tensor, table: Tensor | None, rows: Tensor) -> Tensor:
    """Masked and divided logits, in torch."""
    if table is not None:
        logits = logits.masked_fill(~allowed_tokens(table, rows, logits.shape[1]), -torch.inf)
    return logits / case.temperature if case.temperature > 0 else logits


def chain(case: Case, logits: Tensor, table: Tensor | None, rows: Tensor) -> Tensor:
    """The usual way, in torch."""
    logits = masked(case, logits, table, rows)
    if case.temperature == 0:
        return logits.argmax(-1)
    if case.top_k or case.top_p < 1:
        ordered, index = logits.sort(-1, descending=True)
        if case.top_k:
            ordered = ordered.masked_fill(
                torch.arange(ordered.shape[1], device=logits.device) >= case.top_k, -torch.inf
            )
        share = ordered.softmax(-1)
        dropped = (share.cumsum(-1) - share >= case.top_p) | (ordered == -torch.inf)
        logits = logits.masked_fill(torch.zeros_like(dropped).scatter(1, index, dropped), -torch.inf)
    shares = logits.softmax(-1)  # over exponential noise: `torch.multinomial` waits for the host, which no graph may
    return shares.div_(torch.empty_like(shares).exponential_()).argmax(-1)


def flashinfer_call(case: Case, logits: Tensor, table: Tensor | None, rows: Tensor) -> Call | None:
    """FlashInfer's fused sampling; None if it is not installed, or has nothing for the case."""
    if not HAS_FLASHINFER or not logits.is_cuda or case.temperature == 0:
        return None
    from flashinfer import sampling  # type: ignore[import-not-found]

    top_k = case.top_k or case.vocab_size

    def call() -> object:
        scores = masked(case, logits, table, rows)
        if case.top_k or case.top_p < 1:
            return sampling.top_k_top_p_sampling_from_logits(
                scores, top_k, case.top_p, filter_apply_order="top_k_first"
            )
        return sampling.sampling_from_logits(scores)

    return call


def clock(call: Call, device: torch.device) -> float:
    """Microseconds, median: CPU time of one thread, or device time of a CUDA graph."""
    call()
    times: list[float] = []
    if device.type == "cpu":
        while len(times) < 5 or (sum(times) < 0.3 and len(times) < 200):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return statistics.median(times) * 1e6
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush = torch.empty(256 << 20, dtype=torch.int8, device=device)
    for _ in range(50):
        flush.zero_()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def reading(case: Case, logits: Tensor, table: Tensor | None, rows: Tensor, chosen: Tensor) -> tuple[float, float]:
    """What our kernels read, as a multiple of the logits, and how often they look again; means over the rows.

    32-byte sectors of logits that hold an allowed token, mask words, summaries; then the groups that each look reads.
    """
    scores = masked(case, logits, table, rows)
    row_bytes = case.vocab_size * logits.element_size()
    sector = 32 // logits.element_size()
    whole = case.vocab_size // GROUP * GROUP
    grouped = scores[:, :whole].view(case.num_rows, -1, GROUP)
    tops = grouped.amax(-1)
    group_bytes = (grouped > -torch.inf).unflatten(-1, (-1, sector)).any(-1).sum(-1) * 32.0
    read = group_bytes.sum(-1) + (case.vocab_size / 8 if table is not None else 0) + case.vocab_size / GROUP * 8
    looks = torch.zeros_like(read)
    if case.temperature > 0 and case.top_k:
        kth_top = tops.sort(-1, descending=True).values[:, min(case.top_k, tops.shape[1]) - 1, None]
        listed = (group_bytes * (tops >= kth_top)).sum(-1)
        span = (tops.amax(-1, keepdim=True).view(torch.int32) - kth_top.view(torch.int32))[:, 0]  # of positive scores
        digits = sum((span.abs() >> shift != 0).int() for shift in (0, 8, 16, 24))
        read += digits * listed + listed
        looks += digits + 1
    if case.temperature > 0 and case.top_p < 1:
        score = scores.gather(1, chosen[:, None])
        read += (group_bytes * (tops > score)).sum(-1)
        looks += 1
    return float(read.mean()) / row_bytes, float(looks.mean())


def run(case: Case, device: torch.device) -> str:
    """One line of the table."""
    logits = make_logits(case.num_rows, case.vocab_size, device)
    table, rows = make_mask(case, device)
    edits = make_edits(case, device) if case.extra == "penalties" else None
    num_top = 5 if case.extra == "logprobs" else None

    def column(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((case.num_rows,), value, dtype=dtype, device=device)

    ids = torch.arange(case.num_rows, device=device)
    heat, top_k = column(case.temperature, torch.float32), column(case.top_k, torch.int32)
    top_p, min_p = column(case.top_p, torch.float32), column(0, torch.float32)

    def ours_once() -> tuple[Tensor, object]:
        columns = SamplingRows(rows, heat, top_k, top_p, min_p, ids, ids)
        return sample(logits, table, columns, edits, num_top)

    chosen = ours_once()[0]
    if case.temperature > 0 and not case.extra:  # what is timed is right
        scores = masked(case, logits, table, rows)
        assert (scores.gather(1, chosen[:, None])[:, 0] >= thresholds(scores, top_k, top_p, min_p).kept).all()
    ours = clock(ours_once, device)
    read_once = min(clock(lambda: logits.sum(-1), device), clock(lambda: logits.amax(-1), device))
    usual = clock(lambda: chain(case, logits, table, rows), device) if not case.extra else None
    other_call = None if case.extra else flashinfer_call(case, logits, table, rows)
    other = None
    if other_call:
        try:
            other = clock(other_call, device)
        except Exception as error:  # it compiles itself when it is first called, and may not find how
            print(f"FlashInfer: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
    shown = [f"{number:9.1f}" if number else f"{'-':>9}" for number in (usual, other)]
    times = f"{usual / ours:6.1f}" if usual else f"{'-':>6}"
    multiple, looks = reading(case, logits, table, rows, chosen)
    line = f"{case!s:72} {ours:9.1f} {shown[0]} {times} {shown[1]} {read_once:8.1f} {ours / read_once:9.2f}"
    return f"{line} {multiple:6.2f} {looks:5.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="few rows only")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    if device.type == "cpu":
        torch.set_num_threads(1)
    sizes = [(1, 2048), (32, 2048), (1, 49152), (8, 49152)]
    if device.type == "cuda":
        sizes = [(n, 128256) for n in (1, 8, 32, 128, 256)]
    place = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one thread"
    print(f"{place}, torch {torch.__version__}; microseconds per step")
    if not HAS_FLASHINFER:
        print("FlashInfer is not installed: its column stays empty")
    print(HEAD)
    settings = ((0.0, 0, 1.0), (0.8, 0, 1.0), (0.8, 0, 0.95), (0.8, 50, 0.95))
    for num_rows, vocab_size in sizes[: 1 if arguments.quick else None]:
        for mask in (1.0, 0.5, 0.001):
            for temperature, top_k, top_p in settings:
                print(run(Case(num_rows, vocab_size, mask, temperature, top_k, top_p, ""), device), flush=True)
        for extra in ("penalties", "logprobs"):
            print(run(Case(num_rows, vocab_size, 1.0, 0.8, 50, 0.95, extra), device), flush=True)


if __name__ == "__main__":
    main()
