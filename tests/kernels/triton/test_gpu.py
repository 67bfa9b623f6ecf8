"""What only a device can show: equal bits of decode, chunks and cached prefill, and the public ops on CUDA tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from phloem.kernels import ops
from phloem.kernels.plain import ops as reference
from phloem.runtime.execute.cuda_graphs import CudaRecorder, Step
from phloem.runtime.models import Decoder, resolve_model

from ...runtime.models.decoder_cases import CASES
from ...runtime.models.oracle import save_random_model
from ..paged_batch import make_batch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("heads", [(32, 8, 128), (9, 3, 64), (6, 2, 32), (8, 4, 256), (32, 32, 96)], ids=str)
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_attention_agrees_with_float64(block_size: int, heads: tuple[int, int, int], dtype: torch.dtype) -> None:
    batch = make_batch([1, 200, 1, 7], [700, 200, 300, 1000], heads, block_size, dtype=dtype, device="cuda")
    scale = heads[2] ** -0.5
    out = ops.attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(device="cuda"), scale=scale)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.cpu().double(), batch.exact(scale), atol=2 * eps, rtol=2 * eps)


@pytest.mark.parametrize("hit", [0, 1, 16, 255, 256, 257, 512, 900])
def test_deterministic_chunks_have_the_bits_of_the_whole_prefill(hit: int) -> None:
    batch = make_batch([1000, 1], [1000, 300], (32, 8, 128), dtype=torch.bfloat16, device="cuda")
    options = {"device": "cuda", "deterministic": True}
    whole = ops.attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(**options), scale=0.09)
    for take in (1, 1000 - hit):
        part = batch.only(0, hit, take)
        out = ops.attention(part.q, part.k_cache, part.v_cache, part.plan(**options), scale=0.09)
        assert torch.equal(out, whole[hit : hit + take])


@pytest.mark.parametrize("num_requests", [2, 17, 64])
def test_deterministic_decode_does_not_depend_on_the_batch(num_requests: int) -> None:
    lens = [600 + 13 * b for b in range(num_requests)]
    batch = make_batch([1] * num_requests, lens, (32, 8, 128), shared=512, dtype=torch.bfloat16, device="cuda")
    options = {"device": "cuda", "deterministic": True}
    together = ops.attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(**options), scale=0.09)
    for b in (0, num_requests - 1):
        part = batch.only(b)
        alone = ops.attention(part.q, part.k_cache, part.v_cache, part.plan(**options), scale=0.09)
        assert torch.equal(alone, together[b : b + 1])


def test_ops_take_cuda_tensors() -> None:
    x = torch.randn(3, 192, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(192, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    torch.testing.assert_close(ops.gated(x), reference.gated(x))
    n, logits = 5, torch.randn(5, 50_000, device="cuda")
    rows = ops.SamplingRows(
        torch.full((n,), -1, dtype=torch.int32, device="cuda"),
        torch.rand(n, device="cuda"),
        torch.tensor([0, 5, 0, 50, 0], device="cuda", dtype=torch.int32),
        torch.tensor([1.0, 1.0, 0.9, 0.5, 1.0], device="cuda"),
        torch.tensor([0.0, 0.0, 0.0, 0.0, 0.1], device="cuda"),
        torch.arange(n, device="cuda"),
        torch.arange(n, device="cuda"),
    )
    assert torch.equal(ops.sample(logits, None, rows)[0], reference.sample(logits, None, rows)[0])


@pytest.mark.parametrize("vocab_size", [50_257, 128_256, 262_208])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sampling_of_whole_vocabularies(vocab_size: int, dtype: torch.dtype) -> None:
    """As the twin on the CPU, with every filter; a row alone has the bits that it has among others."""
    n, options = 24, {"device": "cuda"}
    logits = (torch.randn(n, vocab_size, **options) * 3).to(dtype)
    words = torch.randint(-(2**31), 2**31, (3, -(-vocab_size // 32)), **options).to(torch.int32)
    words[1, 10:] = 0
    row = torch.arange(n, **options)
    rows = ops.SamplingRows(
        (row % 4 - 1).int(),
        row % 3 * 0.6,
        (row % 5 * 20).int(),
        torch.where(row % 2 == 0, 0.9, 1.0),
        torch.where(row % 7 == 0, 0.05, 0.0),
        row * 77,
        row * 3,
    )
    token_ids, found = ops.sample(logits, words, rows, num_top=8)
    expected, exact = reference.sample(logits.cpu(), words.cpu(), ops.SamplingRows(*(a.cpu() for a in rows)), num_top=8)
    assert torch.equal(token_ids.cpu(), expected)
    assert found is not None and exact is not None
    torch.testing.assert_close(found.top.cpu(), exact.top, atol=1e-5, rtol=1e-6)
    for r in (0, n - 1):
        one = ops.SamplingRows(*(a[r : r + 1] for a in rows))
        alone, own = ops.sample(logits[r : r + 1], words, one, num_top=8)
        assert own is not None
        assert torch.equal(alone, token_ids[r : r + 1]) and torch.equal(own.top, found.top[r : r + 1])


@pytest.mark.parametrize("case", ["youtu-whole-queries", "gpt-oss"])
def test_a_model_computes_what_it_computes_on_the_cpu(
    tmp_path: Path, run_steps: Callable[..., list[torch.Tensor]], case: str
) -> None:
    """Latents; sinks, windows and experts."""
    save_random_model(tmp_path, *CASES[case])
    decoders = [Decoder.from_folder(tmp_path, device=device, max_positions=512) for device in ("cuda", "cpu")]
    recorders = (CudaRecorder(torch.device("cuda")), None)
    found, expected = (run_steps(*pair, torch.float32, 12) for pair in zip(decoders, recorders, strict=True))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(4096, 1024), (1024, 6144), (14336, 512), (576, 49152)], ids=str)
def test_deterministic_products_do_not_depend_on_the_other_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    depth, num_outputs = shape
    matrix = (torch.randn(num_outputs, depth, device="cuda") / depth**0.5).to(dtype)
    stored = ops.LinearWeight(matrix, None, num_outputs, depth, has_bias=False, row_tile=256)
    x = torch.randn(700, depth, device="cuda").to(dtype)
    together = ops.linear(x, stored)
    exact = (x[:9].double() @ matrix.double().T).float()
    torch.testing.assert_close(together[:9].float(), exact, atol=2e-2, rtol=2e-2)
    for first, count in ((0, 1), (63, 1), (64, 1), (699, 1), (5, 64), (5, 65), (130, 257), (1, 699)):
        assert torch.equal(ops.linear(x[first : first + count], stored), together[first : first + count])


def test_graphs_can_be_captured_when_all_that_were_are_gone() -> None:
    """Their pool of memory stays, though the library of the product keeps its workspace in it."""
    recorder = CudaRecorder(torch.device("cuda"))
    x = torch.randn(64, 64, device="cuda")
    expected = x @ x
    for _ in range(3):
        step = recorder.record(lambda: x @ x)
        torch.testing.assert_close(step(), expected)
        del step
        gc.collect()


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.int8], ids=str)
def test_replayed_steps_have_the_bits_of_the_same_steps_launched_kernel_by_kernel(
    kv_dtype: torch.dtype, run_steps: Callable[..., list[torch.Tensor]]
) -> None:
    decoder = Decoder.from_folder(resolve_model("nano"), device="cuda", dtype=torch.bfloat16)

    class Relaunching:
        def record(self, step: Step) -> Step:
            return step

    recorders = (CudaRecorder(torch.device("cuda")), Relaunching())
    replayed, launched = (run_steps(decoder, each, kv_dtype, 12) for each in recorders)
    for one, other in zip(replayed, launched, strict=True):
        assert torch.equal(one, other)
