"""What of the attention kernels' launch table is to be fitted on a device; called by `bench/studies/attention.py`.

    python bench/studies/attention.py --fit      when sharing a prefix pays; prints the line for `kernels/launch.py`
    python bench/studies/attention.py --configs  decode with other tiles, warps, stages, registers, programs

Both time inside CUDA graphs, with the L2 cache flushed in between, and print tables; nothing is changed.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from unittest.mock import patch

import numpy as np
import torch
from attention_problem import LLAMA_8B, Case, Problem, time_on_cuda
from torch import Tensor

from phloem.kernels.cuda_work import KEY_BEGIN, KEY_END, num_programs_at_once
from phloem.kernels.launch import SHARING_COSTS, SPLIT_SIZE, AttentionConfig, SharingCosts
from phloem.kernels.ops import attention
from phloem.kernels.triton import attention as triton_attention

GROUP = LLAMA_8B[0] // LLAMA_8B[1]


@dataclass(frozen=True)
class Point:
    """Requests that share a prefix: what the two plans count, and what they take in microseconds."""

    case: Case
    saved: int  # keys read less, of all KV heads
    added: int  # partials more
    merges: bool  # only with sharing there is anything to merge
    flat: float
    shared: float

    def is_shared_with(self, costs: SharingCosts) -> bool:
        """What `cuda_work` would choose."""
        _, num_kv_heads, head_dim = LLAMA_8B
        case = self.case
        saved = (case.batch - 1) * (case.shared // SPLIT_SIZE * SPLIT_SIZE)
        added = case.batch * GROUP * -(-case.context_len // SPLIT_SIZE)
        return saved >= costs.partial * added + costs.launch_bytes / (4 * num_kv_heads * head_dim)

    def loss_with(self, costs: SharingCosts) -> float:
        """How many times the better of the two the chosen one takes."""
        return (self.shared if self.is_shared_with(costs) else self.flat) / min(self.flat, self.shared)


def measure(case: Case) -> Point:
    """Times the case flat and with everything shared that can be."""
    problem = Problem.of(case, torch.device("cuda"), torch.bfloat16)
    reads, slots, merges, times = [], [], [], []
    for share in (False, True):
        plan = problem.plan(case, share=share, costs=SharingCosts(0.0, 0.0))
        work = plan.cuda_work
        assert work is not None
        reads.append(int((work.items[:, KEY_END] - work.items[:, KEY_BEGIN]).sum()))
        slots.append(work.num_slots)
        merges.append(work.num_merged > 0)
        times.append(time_on_cuda(lambda: attention(problem.q, problem.k_cache, problem.v_cache, plan, scale=0.09)))  # noqa: B023  # called at once
    return Point(case, reads[0] - reads[1], slots[1] - slots[0], merges[1] and not merges[0], *times)


def fit_sharing(quick: bool) -> None:
    """Fits flat - shared = a * saved - b * added - c * merges over a grid, and shows what the costs so found choose."""
    points = [
        measure(Case("8B shared", LLAMA_8B, batch, shared + own, shared=shared))
        for batch in ((2, 16, 64) if quick else (2, 4, 8, 16, 32, 64, 128, 256))
        for shared in ((512, 8192) if quick else (256, 512, 1024, 2048, 8192, 32768))
        for own in (64, 1024)
        if batch * own + shared <= 1 << 19
    ]
    # relative to what the step takes, so that short steps count as much as long ones
    weights = np.array([1 / point.flat for point in points])
    columns = np.array([[point.saved, -point.added, -float(point.merges)] for point in points]) * weights[:, None]
    gains = np.array([point.flat - point.shared for point in points]) * weights
    (per_key, per_partial, per_merge), *_ = np.linalg.lstsq(columns, gains, rcond=None)
    fitted = SharingCosts(
        partial=max(0.0, float(per_partial / per_key)),
        launch_bytes=max(0.0, float(per_merge / per_key)) * 4 * LLAMA_8B[2],
    )
    print(f"a key of one head {per_key * 1e3:.3f} ns, a partial {per_partial * 1e3:.3f} ns, merging {per_merge:.2f} us")
    print(f"{'':36} {'flat':>9} {'shared':>9} {'ratio':>6}   launch.py      fitted   (x the better one)")
    for point in points:
        verdicts = [
            f"{'shared' if point.is_shared_with(costs) else 'flat':>6} {point.loss_with(costs):5.2f}"
            for costs in (SHARING_COSTS, fitted)
        ]
        case = point.case
        name = f"b{case.batch} shared {case.shared} own {case.context_len - case.shared}"
        times = f"{point.flat:9.1f} {point.shared:9.1f} {point.flat / point.shared:6.2f}"
        print(f"{name:36} {times}   {'   '.join(verdicts)}")
    for name, costs in (("launch.py", SHARING_COSTS), ("fitted", fitted)):
        slowest = max((point.shared / point.flat for point in points if point.is_shared_with(costs)), default=1.0)
        worst = max(point.loss_with(costs) for point in points)
        print(f"{name}: never slower than {1 / slowest:.2f} x flat; at worst {worst:.2f} x the better one")
    print(f"SHARING_COSTS = SharingCosts(partial={fitted.partial:.2g}, launch_bytes={fitted.launch_bytes:.2g})")


def compile_config(config: AttentionConfig) -> None:
    """Launches decode with a configuration, cut into splits and walking them: from then on both lie in Triton's cache.

    What a launch is compiled for are types, strides and the configuration, no lengths.
    """
    with patch.object(triton_attention, "attention_config", lambda *_: config):
        for batch in (1, 64):
            problem = Problem.of(case := Case("", LLAMA_8B, batch, 512), torch.device("cuda"), torch.bfloat16)
            with suppress(Exception):  # too much shared memory: it will be reported where it is timed
                attention(
                    problem.q, problem.k_cache, problem.v_cache, problem.plan(case, share=False), scale=0.09
                ).sum().item()


def compare_configs(quick: bool) -> None:
    """Decode of 8B's heads with every launch configuration of a grid; bits must agree with the table's own."""
    cases = [Case("8B decode", LLAMA_8B, b, n) for b, n in ((1, 8192), (8, 8192), (64, 8192), (256, 1024))]
    grid = list(itertools.product((32, 64, 128), (4, 8), (3, 5, 7), (None, 168, 128)))[:: 5 if quick else 1]
    processes = max(1, min(14, (os.cpu_count() or 1) - 2))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:  # a context of the device each
        list(pool.map(compile_config, (AttentionConfig(16, *values) for values in grid)))
    for case in cases[:: 3 if quick else 1]:
        problem = Problem.of(case, torch.device("cuda"), torch.bfloat16)
        plan = problem.plan(case, share=False)
        work = plan.cuda_work
        assert work is not None

        def run(plan=plan, problem=problem) -> Tensor:  # type: ignore[no-untyped-def]
            return attention(problem.q, problem.k_cache, problem.v_cache, plan, scale=0.09)

        expected, base = run(), time_on_cuda(run)
        print(f"{case.name} b{case.batch} n{case.context_len}: the table's {base:.1f} us")
        processors = num_programs_at_once(problem.q.device)
        for factor in (1, 2, 4):  # programs that loop over items, as inside a graph of a whole step
            looping = replace(plan, cuda_work=replace(work, num_programs=factor * processors))
            took = time_on_cuda(lambda: run(looping))  # noqa: B023  # called at once
            print(f"    {factor * processors:5} programs: {took:8.1f} us   {base / took:5.2f} x")
        found = []
        for keys, warps, stages, registers in grid:
            config = AttentionConfig(16, keys, warps, stages, registers)
            with patch.object(triton_attention, "attention_config", lambda *_, config=config: config):
                try:
                    took = time_on_cuda(run)
                except Exception as error:  # too much shared memory
                    print(f"    {config}: {type(error).__name__}")
                    continue
                worst = float((run() - expected).abs().max())
            found.append(
                (took, f"{config.block_keys:4} keys {warps} warps {stages} stages {registers} registers", worst)
            )
        for took, name, worst in sorted(found)[:8]:
            print(f"    {name:44} {took:8.1f} us   {base / took:5.2f} x   max diff {worst:.1e}", flush=True)
