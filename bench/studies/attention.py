"""Attention over paged KV, side by side in one run: ours flat, ours with shared prefixes, torch's SDPA.

    python bench/studies/attention.py               what the machine has: a GPU, else the CPU
    python bench/studies/attention.py --device cpu  one thread, CPU time
    python bench/studies/attention.py --quick       a few cases
    python bench/studies/attention.py --sharing     the flat path / shared, over requests and lengths of the prefix,
                                                    and the shared one compared with its arithmetic alone
    python bench/studies/attention.py --fit         on a GPU: when sharing pays, fitted; prints the line for `launch.py`
    python bench/studies/attention.py --configs     on a GPU: decode with other tiles, warps, stages and registers

SDPA is given its best case: KV already contiguous, query heads of a group packed as rows on the CPU; "gather"
adds the copy out of the blocks that it would need here. On the CPU, where requests share, one more column gives each
of them its own copy of the prefix: the flat path of a server that keeps no prefixes. On a GPU kernels of others take
part if they are installed (`attention_peers`), each as a multiple of our better time. A call there is timed inside
a CUDA graph, with the L2 cache flushed in between, and its bytes of KV are set against the bandwidth of a large copy
measured in the same run. Medians; every answer is compared with SDPA's.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from attention_peers import ABSENT, PEERS, Paged, present
from attention_problem import (
    BLOCK_SIZE,
    LLAMA_8B,
    NANO,
    SMOLLM,
    Call,
    Case,
    Problem,
    time_on_cpu,
    time_on_cuda,
)
from torch import Tensor

from phloem.kernels import FP8, pack_linear
from phloem.kernels.ops import attention, linear, write_kv

Peers = dict[str, Callable[[Paged], Call]]

CPU_CASES = [
    Case("nano decode", NANO, 1, 300),
    Case("nano decode", NANO, 8, 300),
    Case("nano shared prompt", NANO, 64, 700, shared=640),
    Case("nano prefill", NANO, 1, 512, q_len=512),
    Case("nano chunk", NANO, 1, 2400, q_len=60),
    Case("135M decode", SMOLLM, 1, 512),
    Case("135M decode", SMOLLM, 8, 2048),
    Case("135M shared prompt", SMOLLM, 64, 2200, shared=2048),
    Case("135M chunk", SMOLLM, 1, 2400, q_len=60),
    Case("135M prefill", SMOLLM, 1, 512, q_len=512),
    Case("135M prefill", SMOLLM, 1, 2048, q_len=2048),
]
CUDA_CASES = [
    *(Case("8B decode", LLAMA_8B, b, n) for b, n in ((1, 1024), (1, 8192), (1, 32768), (8, 1024), (8, 8192))),
    *(Case("8B decode", LLAMA_8B, b, n) for b, n in ((8, 32768), (32, 2048), (64, 8192), (256, 1024))),
    *(Case("8B shared", LLAMA_8B, b, 256 + n, shared=n) for b in (2, 16, 64, 256) for n in (512, 2048, 8192)),
    Case("8B prefill", LLAMA_8B, 1, 2048, q_len=2048),
    Case("8B chunk", LLAMA_8B, 1, 16384, q_len=512),
    Case("8B verify 8", LLAMA_8B, 16, 4096, q_len=8),
]


def sdpa(case: Case, problem: Problem, k: Tensor, v: Tensor) -> Tensor:
    """torch's attention on contiguous KV, in the layout that it likes best."""
    num_heads, num_kv_heads, head_dim = case.heads
    q = problem.q.view(case.batch, case.q_len, num_heads, head_dim)
    if case.q_len == 1:  # the heads of a group are rows of one small matrix product
        packed = q.view(case.batch, num_kv_heads, num_heads // num_kv_heads, head_dim)
        return F.scaled_dot_product_attention(packed, k, v).view(problem.q.shape)
    q = q.transpose(1, 2)
    if case.q_len == case.context_len:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    else:
        rows = torch.arange(case.context_len - case.q_len, case.context_len, device=q.device)
        mask = torch.arange(case.context_len, device=q.device) <= rows[:, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=k.shape[1] < num_heads)
    return out.transpose(1, 2).reshape(problem.q.shape)


def copy_bandwidth() -> float:
    """Bytes per microsecond, read and written, of a 2 GiB copy."""
    source = torch.empty(2 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / time_on_cuda(lambda: target.copy_(source))


def compare(paged: Paged, peer: Callable[[Paged], Call], expected: Tensor, ours: float) -> str:
    """A peer's time compared with ours, or why there is none."""
    try:
        call = peer(paged)
        worst = float((call() - expected).abs().max())
        time = time_on_cuda(call)
    except Exception as error:  # whatever it is, the other columns are still wanted
        return f"- ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
    return f"{time:.1f} us: {time / ours:.2f} x ours, diff {worst:.1e}"


def run(case: Case, device: torch.device, dtype: torch.dtype, bandwidth: float, peers: Peers) -> str:
    """One line of the table."""
    problem = Problem.of(case, device, dtype)
    scale = case.heads[2] ** -0.5
    clock = time_on_cuda if device.type == "cuda" else time_on_cpu
    plans = {share: problem.plan(case, share=share) for share in (False, True)}

    def ours(share: bool) -> Tensor:
        return attention(problem.q, problem.k_cache, problem.v_cache, plans[share], scale=scale)

    k, v = problem.gather()
    expected = sdpa(case, problem, k, v)
    worst = max(float((ours(share) - expected).abs().max()) for share in (False, True))
    flat, shared = clock(lambda: ours(False)), clock(lambda: ours(True))
    contiguous = clock(lambda: sdpa(case, problem, k, v))
    if 1 < case.q_len < case.context_len:  # a mask and groups of heads at once may keep torch from its fast kernels
        wide = [part.repeat_interleave(case.heads[0] // case.heads[1], 1) for part in (k, v)]
        contiguous = min(contiguous, clock(lambda: sdpa(case, problem, *wide)))
    copied = clock(lambda: sdpa(case, problem, *problem.gather()))
    peers_column = ""
    if case.shared and device.type == "cpu":
        apart = Problem.of(replace(case, shared=0), device, dtype)
        plan = apart.plan(case, share=False)
        time_apart = clock(lambda: attention(apart.q, apart.k_cache, apart.v_cache, plan, scale=scale))
        peers_column = f"   own copies {time_apart:.0f} us: {time_apart / shared:.2f} x shared"
    if device.type == "cuda":
        paged = Paged(problem.q, problem.k_cache, problem.v_cache, problem.blocks, problem.context_len, scale)
        peers_column = "".join(
            f"   {name} {compare(paged, peer, expected, min(flat, shared))}" for name, peer in peers.items()
        )
    planning = time_on_cpu(lambda: problem.plan(case, share=True) and problem.q)
    columns = (
        f"{flat:11.1f} {shared:11.1f} {contiguous:11.1f} {copied:11.1f} {contiguous / shared:8.2f} {planning:8.0f}"
    )
    if bandwidth:
        num_bytes = 2 * case.batch * case.context_len * case.heads[1] * case.heads[2] * problem.q.element_size()
        columns += f" {100 * num_bytes / flat / bandwidth:7.0f} %"
    name = f"{case.name} b{case.batch} n{case.context_len} q{case.q_len} shared {case.shared}"
    return f"{name:45} {columns}   {worst:.1e}{peers_column}"


def report_sharing() -> None:
    """Flat over shared on the CPU, calls in turns, the best of each; 100 keys of every request are its own."""
    print("flat / shared by length of the shared prefix, 100 own keys each")
    for name, heads in (("135M", SMOLLM), ("8B heads", LLAMA_8B)):
        for batch in (2, 4, 16, 64):
            ratios = []
            for shared in (64, 256, 1024):
                if heads == LLAMA_8B and batch * shared > 64 * 256:  # gigabytes
                    continue
                case = Case(name, heads, batch, shared + 100, shared=shared)
                problem = Problem.of(case, torch.device("cpu"), torch.float32)
                plans = [problem.plan(case, share=share) for share in (False, True)]
                times: list[list[float]] = [[], []]
                for turn in range(40):
                    start = time.process_time()
                    attention(problem.q, problem.k_cache, problem.v_cache, plans[turn % 2], scale=0.1)
                    times[turn % 2].append(time.process_time() - start)
                ratios.append(f"{shared}: {min(times[0][1:]) / min(times[1][1:]):.2f}")
            print(f"{name:>10} {batch:3} requests   {'   '.join(ratios)}", flush=True)


PEAK_ROWS, PEAK_DEPTH = 96, 256  # of a product whose weight stays in the first-level cache
PEAK_INPUTS, PEAK_WEIGHT = torch.randn(PEAK_ROWS, PEAK_DEPTH), pack_linear(torch.randn(16, PEAK_DEPTH))


def _multiply_adds() -> None:
    """A hundred such products: about what this core can multiply."""
    for _ in range(100):
        linear(PEAK_INPUTS, PEAK_WEIGHT)


def report_bound() -> None:
    """One prefix of many requests, by type of KV, compared with as many multiply-adds in a product."""
    case = Case("135M", SMOLLM, 64, 2049, shared=2048)
    problem = Problem.of(case, torch.device("cpu"), torch.float32)
    plans = [problem.plan(case, share=share) for share in (False, True)]
    num_slots = len(problem.k_cache) * BLOCK_SIZE
    k, v = (cache.transpose(1, 2).flatten(0, 1) for cache in (problem.k_cache, problem.v_cache))
    print(f"\n{case.batch} requests on {case.shared} keys, 135M heads; milliseconds a layer, best of several")
    print(f"{'KV':>8}{'flat':>8}{'shared':>8}{'ratio':>7}{'multiply-adds alone':>21}{'best ratio':>12}")
    for dtype in (torch.float32, torch.int8, FP8):
        caches: tuple[Tensor, ...] = (problem.k_cache, problem.v_cache)
        scales: dict[str, Tensor] = {}
        if dtype != torch.float32:
            caches = tuple(torch.zeros(cache.shape, dtype=dtype) for cache in caches)
            scales = {name: torch.zeros(caches[0].shape[:3]) for name in ("k_scales", "v_scales")}
            write_kv(k, v, *caches, torch.arange(num_slots), *scales.values())
        times: list[list[float]] = [[], [], []]
        for turn in range(60):
            start = time.process_time()
            if turn % 3 == 2:
                _multiply_adds()
            else:
                attention(problem.q, *caches, plans[turn % 3], scale=0.1, **scales)
            times[turn % 3].append(time.process_time() - start)
        flat, shared, steps = (1e3 * min(part[1:]) for part in times)
        alone = steps / (100 * PEAK_ROWS * PEAK_DEPTH * 16) * 2 * problem.q.numel() * case.context_len
        name = str(dtype).removeprefix("torch.").removesuffix("_e4m3fn")
        print(
            f"{name:>8}{flat:>8.2f}{shared:>8.2f}{flat / shared:>7.2f}{alone:>21.2f}{flat / alone:>12.2f}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="every third case")
    parser.add_argument("--fit", action="store_true", help="only the costs of sharing, on a GPU")
    parser.add_argument("--configs", action="store_true", help="only other launch configurations, on a GPU")
    parser.add_argument("--sharing", action="store_true", help="only the CPU's flat path against its shared one")
    arguments = parser.parse_args()
    if arguments.sharing:
        torch.set_num_threads(1)
        report_sharing()
        report_bound()
        return
    device = torch.device(arguments.device)
    if arguments.fit or arguments.configs:
        if not torch.cuda.is_available():
            sys.exit("bench/studies/attention.py: --fit and --configs time a GPU and found no CUDA device")
        from tune_attention import compare_configs, fit_sharing

        (fit_sharing if arguments.fit else compare_configs)(arguments.quick)
        return
    torch.manual_seed(0)
    np.random.seed(0)
    if device.type == "cpu":
        torch.set_num_threads(1)
    cases = CUDA_CASES if device.type == "cuda" else CPU_CASES
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    bandwidth = copy_bandwidth() if device.type == "cuda" else 0.0
    place = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.processor() or 'CPU'}, one thread"
    print(f"{place}, torch {torch.__version__}, {dtype}; microseconds per layer; blocks of {BLOCK_SIZE}")
    if bandwidth:
        print(f"copy: {bandwidth / 1e6:.2f} TB/s; last column: KV bytes of the flat path per time, of that")
    peers: Peers = {}
    if device.type == "cuda":
        for name, said in present().items():
            print(f"{name}: {said}")
            peers |= {} if said.startswith(ABSENT) else {name: PEERS[name]}
    names = ("ours flat", "ours shared", "sdpa contig", "gather+sdpa")
    columns = " ".join(f"{name:>11}" for name in names)
    print(f"{'case':45} {columns} {'x sdpa':>8} {'plan us':>8}   max diff")
    for case in cases[:: 3 if arguments.quick else 1]:
        print(run(case, device, dtype, bandwidth, peers), flush=True)


if __name__ == "__main__":
    main()
