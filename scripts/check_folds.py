"""Deterministic mode compiles a sum in two ways: do they round alike? Asked of the machine code, without a GPU.

    python scripts/check_folds.py               all shapes and architectures
    python scripts/check_folds.py --subset      a representative part, for the test suite

A row of attention may be computed by the kernel that folds every split as it walks, or by the one that sums up a single
split and leaves folding to the merge. Their key loops must do the same to a row's numbers, but the compiler is free to
fuse a multiplication and an addition in one of them and not in the other. So the floating-point instructions of both
loops are counted: the same products on tensor cores, by full name, and in the folding one besides exactly what a fold
is::

    for each row       maximum, two differences, two powers of two, a product and a fused one for the sum
    for each element   a product and a fused one

Linear maps have a launch for few rows and one for many: their loops must hold the same products and nothing else.

Those with weights in few bits hold, besides, the same instructions that widen and scale.

Anything else is a fault, and the exit status 1. All of them take about five minutes of CPU.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from check_kernels import SHARED_KIB, compile_case
from kernel_case import Case
from kernel_cases import attention_cases
from product_cases import grouped_cases, linear_cases

ARITHMETIC = re.compile(r"FFMA|FMUL|FADD|FMNMX|MUFU|F2F|HFMA|HMUL|HADD")
PACKED = re.compile(r"(FFMA|FMUL|FADD)2\b")  # two fp32 at once, on sm_100
NO_PRODUCT = re.compile(r"-RZ, RZ,")  # zero times zero and a constant: how some architectures load one
TENSOR_CORE = re.compile(r"HMMA|HGMMA|UTCHMMA|UTCQMMA")


def instructions(case: Case, arch: int, folder: Path) -> list[tuple[int, str, str]]:
    """(Address, name, operands) of the compiled kernel's instructions."""
    import triton

    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compile_case(case, arch).asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run([tool, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);", text)
    return [(int(address, 16), name, operands) for address, name, operands in found]


def key_loop(code: list[tuple[int, str, str]]) -> Counter[str]:
    """How often each floating-point instruction stands in the innermost loop that multiplies on tensor cores."""
    loops = []
    for address, name, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if name.startswith("BRA") and target is not None and int(target[1], 16) < address:
            begin = int(target[1], 16)
            body = [(name, operands) for at, name, operands in code if begin <= at <= address]
            if any(TENSOR_CORE.match(name) for name, _ in body):
                loops.append((address - begin, body))
    if not loops:
        return Counter()
    counts: Counter[str] = Counter()
    for name, operands in min(loops)[1]:
        if NO_PRODUCT.search(operands):
            continue
        if TENSOR_CORE.match(name):
            counts[name] += 1
        elif packed := PACKED.match(name):
            counts[packed[1]] += 2
        elif ARITHMETIC.match(name):
            counts[name.split(".")[0]] += 1
    return counts


def fold_of(num_rows: int, num_elements: int) -> Counter[str]:
    """The instructions of one fold in a thread that holds `num_rows` and `num_elements`."""
    products = num_rows + num_elements
    return Counter(FMNMX=num_rows, FADD=2 * num_rows, MUFU=2 * num_rows, FMUL=products, FFMA=products)


def pairs(subset: bool) -> Iterator[tuple[Case, Case]]:
    """(Summing up, folding) kernels of the deterministic tile classes that multiply on tensor cores."""
    from phloem.kernels.launch import tile_classes

    waiting: dict[str, Case] = {}
    for case in attention_cases(subset=False):
        (block_rows,) = tile_classes(case.constants["HEAD_DIM"], deterministic=True)
        if case.constants["BLOCK_ROWS"] != block_rows or case.types["q_ptr"] == "*fp32":
            continue
        if subset and not case.name.startswith("attention bf16 G4 D128 page16 "):
            continue
        name = case.name.replace(" one sum", "").replace(" folds", "")
        if name in waiting:
            yield waiting.pop(name), case
        else:
            waiting[name] = case


def linear_pairs() -> Iterator[tuple[Case, Case]]:
    """(Few rows, many rows) launches of linear maps on tensor cores."""
    for element in ("bf16", "fp16"):
        few, many, _ = (case for case in linear_cases(subset=False) if case.name.startswith(f"linear {element} "))
        yield few, many


def grouped_pairs() -> Iterator[tuple[Case, Case]]:
    """The same with weights in few bits, in deterministic mode."""
    for element in ("int4", "int8", "e4m3"):
        name = f"linear {element} in 128s, bf16, rows64"
        few, many = (case for case in grouped_cases(subset=False) if case.name.startswith(name))
        yield few, many


def check_same(few: Case, many: Case, arch: int) -> str:
    """What is wrong; empty if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = (key_loop(instructions(case, arch, Path(folder))) for case in (few, many))
    for loop in (one, other):
        del loop["F2FP"]  # zeros become bf16, which is exact, in the loop or before it
    if one == other and any(TENSOR_CORE.match(name) for name in one):
        return ""
    return f"not the same: {dict(one - other)} more, {dict(other - one)} less"


def check_products(few: Case, many: Case, arch: int) -> str:
    """What is wrong; empty if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = (key_loop(instructions(case, arch, Path(folder))) for case in (few, many))
    same = set(one) == set(other) and all(TENSOR_CORE.match(name) for name in one)
    return "" if one and same else f"not the same products: {dict(one)}, {dict(other)}"


def check(summing: Case, folding: Case, arch: int) -> str:
    """What is wrong; empty if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        plain, folds = (key_loop(instructions(case, arch, Path(folder))) for case in (summing, folding))
    if not plain or not folds:
        return "no loop on tensor cores was found"
    extra, missing = folds - plain, plain - folds
    num_rows, num_elements = extra["FMNMX"], extra["FFMA"] - extra["FMNMX"]  # a thread may hold more than its share
    share = folding.constants["BLOCK_ROWS"] * folding.constants["BLOCK_DIM"] // (32 * folding.num_warps)
    if missing or extra != fold_of(num_rows, num_elements) or num_elements % share or not num_elements:
        return f"not the same and one fold: {dict(extra)} more, {dict(missing)} less"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--subset", action="store_true", help="a representative part, for the test suite")
    parser.add_argument("--arch", type=int, action="append", choices=sorted(SHARED_KIB), help="only these")
    arguments = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TRITON_CACHE_DIR", folder)
        return report(arguments.arch or ([90] if arguments.subset else sorted(SHARED_KIB)), arguments.subset)


def report(archs: list[int], subset: bool) -> int:
    """Prints a line for each pair of kernels; the exit status."""
    num_faults = 0
    for arch in archs:
        found = [(pair[1], check(*pair, arch)) for pair in pairs(subset) if arch >= pair[1].oldest]
        found += [(pair[1], check_products(*pair, arch)) for pair in linear_pairs()]
        found += [(pair[1], check_same(*pair, arch)) for pair in grouped_pairs() if not subset]
        for folding, fault in found:
            num_faults += bool(fault)
            print(f"{'FAIL' if fault else 'ok  '} sm_{arch:<3} {folding.name} {fault}".rstrip(), flush=True)
    print(f"{num_faults} faults")
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main())
