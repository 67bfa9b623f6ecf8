"""Ops of recurrent layers: loops and kernels against the plain reference, and the same bits however a text is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phloem.kernels import recurrent
from phloem.kernels.cpu import recurrent as cpu_recurrent
from phloem.kernels.plain import recurrent as reference
from phloem.kernels.recurrent import HeadInputs
from phloem.kernels.state_rounds import ZEROS, StateRounds, plan_states

from . import lazy_triton as triton
from .on_device import on_device

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Cuts:
    """Texts of some lengths, laid end to end and cut into rounds; slot 2 i is text i's, states go back and forth."""

    lengths: list[int]
    rounds: list[list[tuple[int, int, int, int]]]

    @property
    def num_rows(self) -> int:
        return sum(self.lengths)

    @property
    def num_slots(self) -> int:
        return 2 * len(self.lengths)

    def final_slots(self) -> list[int]:
        last: dict[int, int] = {}
        for segments in self.rounds:
            last |= {write // 2: write for _, _, _, write in segments}
        return [last[text] for text in range(len(self.lengths))]

    def plan(self, device: torch.device = CPU) -> StateRounds:
        return plan_states([np.array(segments, np.int64) for segments in self.rounds], device)


@st.composite
def cut_texts(draw: st.DrawFn, most: int = 9) -> Cuts:
    lengths = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    begins = np.cumsum([0, *lengths]).tolist()
    rounds: list[list[tuple[int, int, int, int]]] = []
    for text, (begin, end) in enumerate(pairwise(begins)):
        inner = draw(st.sets(st.integers(begin + 1, max(begin + 1, end - 1)), max_size=3)) if end - begin > 1 else set()
        points = sorted({begin, *inner, end})
        for number, (first, last) in enumerate(pairwise(points)):
            if number == len(rounds):
                rounds.append([])
            read = 2 * text + (number - 1) % 2 if number else ZEROS
            rounds[number].append((first, last, read, 2 * text + number % 2))
    return Cuts(lengths, rounds)


def whole(cuts: Cuts) -> Cuts:
    begins = np.cumsum([0, *cuts.lengths]).tolist()
    return Cuts(cuts.lengths, [[(begin, end, ZEROS, 2 * text) for text, (begin, end) in enumerate(pairwise(begins))]])


@dataclass(frozen=True)
class Job:
    """A call of an op, but for its states and plan; a state is set where none may be read."""

    name: str  # of the op
    inputs: tuple[Any, ...]
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, path: Any, plan: StateRounds, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
        """(Outputs, states)."""
        states = torch.full(self.shape, 7.0, device=device)
        inputs = (on_device(x, device) for x in self.inputs)
        return getattr(path, self.name)(*inputs, states, plan, **self.options), states


def convolution(cuts: Cuts, seed: int, channels: int, width: int) -> Job:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(cuts.num_rows, channels + 8, generator=generator)
    bias = torch.randn(channels, generator=generator) if seed % 2 else None
    weight = torch.randn(width, channels, generator=generator)
    shape = (cuts.num_slots, width - 1, channels)
    return Job("convolve", (wide[:, :channels], weight, bias), shape, {"silu": seed % 3 == 0})


def rule(
    cuts: Cuts, seed: int, key_heads: int, repeats: int, dims: tuple[int, int], dtype: torch.dtype = torch.float32
) -> Job:
    """The delta rule, with decays of heads or of keys, or a state space."""
    generator = torch.Generator().manual_seed(seed)
    key_dim, value_dim = dims
    heads = key_heads * repeats

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q, k = (random(cuts.num_rows, key_heads, key_dim).to(dtype) for _ in range(2))
    v = random(cuts.num_rows, heads, value_dim).to(dtype)
    a, b = (random(cuts.num_rows, heads).to(dtype) * 3 for _ in range(2))
    rate, step_bias, shape = random(heads).exp(), random(heads), (cuts.num_slots, heads, key_dim, value_dim)
    if seed % 3 == 1:
        a, step_bias = random(cuts.num_rows, heads, key_dim).to(dtype) * 3, random(heads, key_dim)
    if seed % 3:
        return Job("advance_heads", (HeadInputs(q, k, v, a, rate, step_bias, b),), shape)
    limits = (0.0, float("inf")) if seed % 2 else (0.1, 1.5)
    return Job("advance_heads", (HeadInputs(q, k, v, a, rate, step_bias, None, random(heads), limits),), shape)


def channel_scan(cuts: Cuts, seed: int, channels: int, state_dim: int, dtype: torch.dtype = torch.float32) -> Job:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    both = random(cuts.num_rows, 2 * channels + 3).to(dtype)
    x, a = both[:, :channels], both[:, channels : 2 * channels] * 3
    b, c = (random(cuts.num_rows, state_dim).to(dtype) for _ in range(2))
    constants = (random(state_dim, channels).exp(), random(channels), random(channels))
    return Job("scan_channels", (x, a, b, c, *constants), (cuts.num_slots, state_dim, channels))


@settings(max_examples=60)
@given(cut_texts(), st.integers(0, 1000), st.sampled_from([8, 24, 136]), st.integers(2, 5))
def test_convolution_on_the_cpu(cuts: Cuts, seed: int, channels: int, width: int) -> None:
    check_on_the_cpu(cuts, convolution(cuts, seed, channels, width), torch.float32)


@settings(max_examples=60)
@given(
    cut_texts(),
    st.integers(0, 1000),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([(8, 8), (16, 40), (24, 64)]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_head_states_on_the_cpu(
    cuts: Cuts, seed: int, key_heads: int, repeats: int, dims: tuple[int, int], dtype: torch.dtype
) -> None:
    check_on_the_cpu(cuts, rule(cuts, seed, key_heads, repeats, dims, dtype), dtype)


@settings(max_examples=40)
@given(
    cut_texts(),
    st.integers(0, 1000),
    st.sampled_from([(8, 1), (24, 16), (136, 5)]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_channel_states_on_the_cpu(cuts: Cuts, seed: int, dims: tuple[int, int], dtype: torch.dtype) -> None:
    check_on_the_cpu(cuts, channel_scan(cuts, seed, *dims, dtype), dtype)


def check_on_the_cpu(cuts: Cuts, job: Job, dtype: torch.dtype) -> None:
    out, states = job.run(cpu_recurrent, cuts.plan())
    at_once, whole_states = job.run(cpu_recurrent, whole(cuts).plan())
    assert_alike(job, (out, states), job.run(reference, cuts.plan()), 1e-4 if dtype is torch.float32 else 2e-2)
    assert torch.equal(out, at_once)
    assert torch.equal(states[cuts.final_slots()], whole_states[whole(cuts).final_slots()])


def assert_alike(job: Job, found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], most: float) -> None:
    """States of a convolution are its inputs, to the bit."""
    (out, states), (expected_out, expected_states) = found, expected
    torch.testing.assert_close(out.cpu(), expected_out, rtol=most, atol=most)
    off = 0.0 if job.name == "convolve" else 1e-4
    torch.testing.assert_close(states.cpu(), expected_states, rtol=off, atol=off)


@settings(max_examples=8)
@given(cut_texts(most=20), st.integers(0, 1000), st.sampled_from([5, 72]), st.integers(2, 4))
def test_convolution_in_triton(device: torch.device, cuts: Cuts, seed: int, channels: int, width: int) -> None:
    check_in_triton(device, cuts, convolution(cuts, seed, channels, width))


@settings(max_examples=8)
@given(cut_texts(most=5), st.integers(0, 1000), st.integers(1, 2), st.sampled_from([(8, 8), (12, 40)]))
def test_head_states_in_triton(
    device: torch.device, cuts: Cuts, seed: int, repeats: int, dims: tuple[int, int]
) -> None:
    check_in_triton(device, cuts, rule(cuts, seed, 2, repeats, dims))


@settings(max_examples=8)
@given(cut_texts(most=5), st.integers(0, 1000), st.sampled_from([(5, 3), (72, 16)]))
def test_channel_states_in_triton(device: torch.device, cuts: Cuts, seed: int, dims: tuple[int, int]) -> None:
    check_in_triton(device, cuts, channel_scan(cuts, seed, *dims))


def check_in_triton(device: torch.device, cuts: Cuts, job: Job) -> None:
    found = job.run(triton.recurrent, cuts.plan(device), device)
    assert_alike(job, found, job.run(reference, cuts.plan()), 1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda cuts, width: convolution(cuts, 1, width, 3),
        lambda cuts, width: channel_scan(cuts, 1, width, 4),
        lambda cuts, width: rule(cuts, 2, 1, 2, (width, 8)),
        lambda cuts, width: rule(cuts, 2, 1, 2, (8, width)),
    ],
)
def test_odd_widths_go_through_the_reference(make: Callable[[Cuts, int], Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops read whole vectors."""
    cuts = Cuts([3], [[(0, 3, ZEROS, 0)]])
    even = make(cuts, 8)
    assert_alike(even, even.run(recurrent, cuts.plan()), even.run(reference, cuts.plan()), 1e-4)
    odd = make(cuts, 5)
    monkeypatch.setattr(recurrent, "cpu_recurrent", None)
    for found, expected in zip(odd.run(recurrent, cuts.plan()), odd.run(reference, cuts.plan()), strict=True):
        assert torch.equal(found, expected)
