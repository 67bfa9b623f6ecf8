"""Compile every Triton kernel for every architecture on a machine without a GPU, and gate on what it becomes.

    python scripts/check_kernels.py             all kernels, configurations and architectures
    python scripts/check_kernels.py --subset    a representative part, for the test suite: all kernels for sm_90, and
                                                those whose loops stream keys and values for sm_80 or sm_100 in turn

For each: registers per thread, shared memory per program, programs that fit on a multiprocessor, and for attention
the K/V buffers in flight (how many tiles the software pipeline holds), for experts those of weights. It fails (exit
status 1) on a compile error, on spilled registers, on more shared memory than the architecture has, on a loop with
fewer than two buffers, which would wait for every load, and on one that does not look ahead where it should. Needs
triton with its bundled ptxas and cuobjdump.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

from kernel_case import Case
from kernel_cases import all_cases

SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227}
THREADS = {80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048}
REGISTERS = 65536
SUBSET = 90  # the architecture that the whole subset is compiled for


def compile_case(case: Case, arch: int) -> Any:
    """The compiled kernel, with the alignment that a launch would find."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = case.kernel.arg_names
    signature = {name: "constexpr" if name in case.constants else case.types[name] for name in names}
    open_ones = {p.name for p in case.kernel.params if p.do_not_specialize or p.do_not_specialize_on_alignment}
    undivided = case.undivided | open_ones
    divided = [n for n, kind in case.types.items() if n not in undivided and not kind.startswith("fp")]
    source = ASTSource(
        case.kernel,
        signature,
        constexprs={(names.index(name),): value for name, value in case.constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in divided},
    )
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages, "enable_fp_fusion": True}
    options["maxnreg"] = case.max_registers
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def read_resources(compiled: Any, folder: Path) -> dict[str, int]:
    """REG, STACK, LOCAL of the cubin, as cuobjdump prints them."""
    import triton

    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run([tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}


def loads_waited_for(ttgir: str) -> set[str]:
    """What the loop loads and does not hand on to its next step."""
    loop = ttgir[ttgir.index("scf.for") :]
    body, _, handed_on = loop[: loop.index("\n", loop.index("scf.yield"))].partition("scf.yield")
    return {name for name in re.findall(r"(%\w+) = tt\.load", body) if not re.search(rf"{name}\b", handed_on)}


def check(case: Case, arch: int, folder: Path) -> tuple[str, list[str]]:
    """One line of the table, and what is wrong."""
    try:
        compiled = compile_case(case, arch)
    except Exception as error:
        return f"{case.name}: {type(error).__name__}", [f"does not compile: {str(error).splitlines()[-1][:100]}"]
    resources = read_resources(compiled, folder)
    shared_kib = compiled.metadata.shared / 1024
    faults = []
    spilled = resources["STACK"] + resources["LOCAL"]
    if spilled:
        faults.append("spills")
    if shared_kib > SHARED_KIB[arch]:
        faults.append("too much shared memory")
    threads = 32 * case.num_warps
    programs = min(  # a program takes 1 KiB of shared memory besides its own, which the largest may exceed the limit by
        int((SHARED_KIB[arch] + 1) // (shared_kib + 1)),
        REGISTERS // (resources["REG"] * threads),
        THREADS[arch] // threads,
    )
    line = (
        f"sm_{arch:<3} {resources['REG']:4} regs {spilled:3} B spilled {shared_kib:6.1f} KiB {programs:3} programs/SM"
    )
    if case.kv_tile is not None:
        keys, dim, itemsize = case.kv_tile
        found = re.findall(rf"local_alloc[^\n]*memdesc<(\d+)x{keys}x{dim}x", compiled.asm["ttgir"])
        buffers = min((int(n) for n in found), default=0)
        if buffers < 2:
            faults.append("fewer than two buffers in flight")
        if case.looks_ahead and loads_waited_for(compiled.asm["ttgir"]):
            faults.append("waits for loads")
        in_flight = programs * buffers * case.tiles * keys * dim * itemsize // 1024
        line += f" {buffers} buffers, {in_flight:4} KiB of {case.streamed} in flight"
    return f"{line}  {case.name}", faults


def check_one(subset: bool, index: int, arch: int) -> tuple[str, list[str]]:
    """`check` of a case named by its place, since kernels do not travel between processes."""
    with tempfile.TemporaryDirectory() as folder:
        return check(all_cases(subset)[index], arch, Path(folder))


def _subset_archs(index: int, case: Case) -> set[int]:
    """The architectures that a case of the subset is compiled for."""
    if case.kv_tile is None or case.streamed != "KV":
        return {SUBSET}
    return {SUBSET, max(case.oldest, (80, 100)[index % 2])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--subset", action="store_true", help="a representative part, for the test suite")
    parser.add_argument("--arch", type=int, action="append", choices=sorted(SHARED_KIB), help="only these")
    parser.add_argument("--only", default="", help="cases whose names match this pattern, in the order of all")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="processes")
    arguments = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    archs = arguments.arch or ([80, 90, 100] if arguments.subset else sorted(SHARED_KIB))
    cases = all_cases(arguments.subset)
    jobs = [
        (i, arch)
        for arch in archs
        for i, case in enumerate(cases)
        if re.search(arguments.only, case.name)
        if arch >= case.oldest and (not arguments.subset or arch in _subset_archs(i, case))
    ]
    num_faults = 0
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(arguments.jobs) as pool:
        os.environ.setdefault("TRITON_CACHE_DIR", folder)  # before the processes start, which is with their first job
        for line, faults in pool.map(check_one, repeat(arguments.subset), *zip(*jobs, strict=True)):
            num_faults += len(faults)
            print(f"{'FAIL' if faults else 'ok  '} {line} {'; '.join(faults)}".rstrip(), flush=True)
    print(f"{num_faults} faults")
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main())
