"""Where the Triton kernels run in these tests: compiled on a GPU if there is one, else in Triton's interpreter.

Triton reads TRITON_INTERPRET when it is imported, and the kernels are imported by the first test that uses them;
so it is set here, before any test of this folder is collected. (Ahead-of-time compilation, which must not be
interpreted, is tested in a process of its own.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phloem.runtime.execute.batch import Batch
from phloem.runtime.execute.cuda_graphs import Recorder
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.model_runner import ModelRunner
from phloem.runtime.models import Decoder

HAS_GPU = torch.cuda.is_available()

if not HAS_GPU:
    if "triton" in sys.modules and not os.environ.get("TRITON_INTERPRET"):
        raise pytest.UsageError("triton was imported before tests/kernels could ask for its interpreter")
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where Triton kernels run."""
    return torch.device("cuda" if HAS_GPU else "cpu")


@pytest.fixture(params=["cpu", "triton"])
def path(request: pytest.FixtureRequest) -> str:
    """Whose kernels run."""
    return str(request.param)


@pytest.fixture
def place(path: str, device: torch.device) -> torch.device:
    """Where those of `path` run."""
    return device if path == "triton" else torch.device("cpu")


@pytest.fixture(scope="session")
def bfloat16() -> torch.dtype:
    """torch.bfloat16, once the interpreter computes with it: it keeps the raw 16 bits as an integer."""
    if not HAS_GPU:
        _repair_bfloat16()
    return torch.bfloat16


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest, bfloat16: torch.dtype) -> torch.dtype:
    kind: torch.dtype = request.param
    return kind


def _repair_bfloat16() -> None:
    """Make the interpreter widen bf16 operands to fp32 and round results to nearest even, as hardware does."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    if getattr(builder, "computes_bfloat16", False):
        return
    builder.computes_bfloat16 = True

    def widen(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return handle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def narrow(data: Any) -> Any:
        bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return handle(np.where(np.isnan(data), np.uint16(0x7FC0), rounded), tl.bfloat16)

    def round_back(result: Any, like: Any) -> Any:
        is_wide = like.dtype.scalar == tl.bfloat16 and result.data.dtype == np.float32
        return narrow(result.data) if is_wide else result

    dot, binary, unary, truncate = builder.create_dot, builder.binary_op, builder.unary_op, builder.create_fp_trunc
    builder.create_dot = lambda self, a, b, acc, *rest: dot(self, widen(a), widen(b), acc, *rest)
    builder.binary_op = lambda self, a, b, op: round_back(binary(self, widen(a), widen(b), op), a)
    builder.unary_op = lambda self, a, op: round_back(unary(self, widen(a), op), a)
    builder.create_fp_trunc = lambda self, x, kind: (
        narrow(x.data) if kind.scalar == tl.bfloat16 and x.dtype.scalar == tl.float32 else truncate(self, x, kind)
    )
    if not hasattr(builder, "get_bf16"):  # Triton up to 3.7
        builder.get_bf16 = lambda self, value: narrow(np.array([value]))
    if not hasattr(builder, "create_dot_scaled"):
        _lend_dot_scaled(builder, lambda x: widen(x).data, lambda data: handle(data, tl.float32))


class _Format(str):
    """A format's name, that says so when it is asked as a compile-time constant."""

    @property
    def value(self) -> str:
        return str(self)


def _lend_dot_scaled(builder: Any, numbers: Callable[[Any], Any], result: Callable[[Any], Any]) -> None:
    """Teach an interpreter that cannot (Triton up to 3.7) the product of MXFP4 and plain numbers."""
    from triton.language.semantic import TritonSemantic

    from phloem.kernels.mxfp4 import widen

    def create_dot_scaled(self: Any, a: Any, scales: Any, kind: Any, b: Any, _: Any, other: Any, *rest: Any) -> Any:
        *_, acc = rest
        blocks, exponents = (torch.from_numpy(np.ascontiguousarray(x.data)) for x in (a, scales))
        matrix = widen(blocks.view(*exponents.shape, 16), exponents, torch.float32)
        return result(acc.data + matrix.numpy() @ numbers(b))

    semantic: Any = TritonSemantic
    dot_scaled = semantic.dot_scaled
    semantic.dot_scaled = lambda self, a, a_scale, a_format, b, b_scale, b_format, *rest: dot_scaled(
        self, a, a_scale, _Format(a_format), b, b_scale, _Format(b_format), *rest
    )
    builder.create_dot_scaled = create_dot_scaled


@pytest.fixture(scope="session")
def run_steps() -> Callable[..., list[Tensor]]:
    """run_steps(decoder, recorder, kv_dtype, count) -> logits of `count` steps of three requests, drafts among them."""

    def run(decoder: Decoder, recorder: Recorder | None, kv_dtype: torch.dtype, count: int) -> list[Tensor]:
        config, device = decoder.config, decoder.device
        cache = KVCache(shapes=config.kv_shapes(), num_blocks=99, block_size=16, dtype=kv_dtype, device=device)
        runner = ModelRunner(decoder, cache, device, recorder)
        tables = np.random.default_rng(0).permutation(99).reshape(3, 33).astype(np.int32)
        lens, found = np.array([250, 3, 40], np.int32), []
        for step in range(count):
            q_lens = np.array([1, 1, 4 if step % 3 == 2 else 1], np.int32)
            lens = lens + q_lens
            starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)
            owner = np.repeat(np.arange(3), q_lens)
            rows = np.arange(len(owner))
            positions = rows - starts[owner] + (lens - q_lens)[owner]
            slots = tables[owner, positions // 16].astype(np.int64) * 16 + positions % 16
            token_ids = (positions * 7 + owner) % config.vocab_size
            batch = Batch([], token_ids, positions, slots, starts, lens, tables, [], rows)
            found.append(runner.forward(batch).clone())
        return found

    return run


@pytest.fixture(scope="session", autouse=True)
def products_from_left_to_right() -> Iterator[None]:
    """The interpreter hands products to numpy's BLAS, which orders a row's sums by processor, shape and neighbours.

    Here it takes them one input after the other, on every machine.
    """
    if HAS_GPU:
        yield
        return
    from triton.runtime import interpreter

    def dot(self: Any, a: Any, b: Any, acc: Any, *_: Any) -> Any:
        total = acc.data
        left, right = a.data.astype(total.dtype), b.data.astype(total.dtype)
        for k in range(left.shape[1]):
            total = total + left[:, k : k + 1] * right[k : k + 1]
        return interpreter.TensorHandle(total, acc.dtype.scalar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
        yield


@pytest.fixture(scope="session", autouse=True)
def language_patched_once() -> Iterator[None]:
    """The interpreter replaces the language's functions at a launch, and once more at each call of a kernel's helper.

    The second time changes nothing and takes most of a test's time, so it is left out until the launch has ended.
    """
    if HAS_GPU:
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    whole: Callable[[Any], Any] = interpreter._patch_lang
    patched: set[frozenset[int]] = set()

    def patch_language(fn: Any) -> Any:
        found = frozenset(id(value) for value in fn.__globals__.values() if value is language or value is language.core)
        if found in patched:
            return interpreter._LangPatchScope()  # with nothing to restore
        patched.add(found)
        scope = whole(fn)
        restore = scope.restore
        scope.restore = lambda: (patched.clear(), restore())
        return scope

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_language)
        yield
