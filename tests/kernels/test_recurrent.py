"""Ops of recurrent layers: loops and kernels against the plain reference, and the same bits however a text is cut."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
class Convolution:
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    silu: bool
    num_slots: int

    def states(self) -> Tensor:
        return torch.full((self.num_slots, len(self.weight) - 1, self.x.shape[1]), 7.0)


def convolution(cuts: Cuts, seed: int, channels: int, width: int, dtype: torch.dtype = torch.float32) -> Convolution:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(cuts.num_rows, channels + 8, generator=generator).to(dtype)
    bias = torch.randn(channels, generator=generator) if seed % 2 else None
    weight = torch.randn(width, channels, generator=generator)
    return Convolution(wide[:, :channels], weight, bias, seed % 3 == 0, cuts.num_slots)


@dataclass(frozen=True)
class Rule:
    name: str  # of the op
    inputs: tuple[Any, ...]
    shape: tuple[int, ...]

    def states(self) -> Tensor:
        return torch.full(self.shape, 7.0)


def rule(
    cuts: Cuts, seed: int, key_heads: int, repeats: int, dims: tuple[int, int], dtype: torch.dtype = torch.float32
) -> Rule:
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
        return Rule("advance_heads", (HeadInputs(q, k, v, a, rate, step_bias, b),), shape)
    limits = (0.0, float("inf")) if seed % 2 else (0.1, 1.5)
    return Rule("advance_heads", (HeadInputs(q, k, v, a, rate, step_bias, None, random(heads), limits),), shape)


def channel_scan(cuts: Cuts, seed: int, channels: int, state_dim: int, dtype: torch.dtype = torch.float32) -> Rule:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    both = random(cuts.num_rows, 2 * channels + 3).to(dtype)
    x, a = both[:, :channels], both[:, channels : 2 * channels] * 3
    b, c = (random(cuts.num_rows, state_dim).to(dtype) for _ in range(2))
    constants = (random(state_dim, channels).exp(), random(channels), random(channels))
    return Rule("scan_channels", (x, a, b, c, *constants), (cuts.num_slots, state_dim, channels))


@settings(max_examples=60)
@given(cut_texts(), st.integers(0, 1000), st.sampled_from([8, 24, 136]), st.integers(2, 5))
def test_convolution_on_the_cpu(cuts: Cuts, seed: int, channels: int, width: int) -> None:
    job = convolution(cuts, seed, channels, width)
    states, expected_states, whole_states = job.states(), job.states(), job.states()
    out = cpu_recurrent.convolve(job.x, job.weight, job.bias, states, cuts.plan(), silu=job.silu)
    expected = reference.convolve(job.x, job.weight, job.bias, expected_states, cuts.plan(), silu=job.silu)
    at_once = cpu_recurrent.convolve(job.x, job.weight, job.bias, whole_states, whole(cuts).plan(), silu=job.silu)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(states, expected_states)
    assert torch.equal(out, at_once)
    assert torch.equal(states[cuts.final_slots()], whole_states[whole(cuts).final_slots()])


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


def check_on_the_cpu(cuts: Cuts, job: Rule, dtype: torch.dtype) -> None:
    states, expected_states, whole_states = job.states(), job.states(), job.states()
    out = getattr(cpu_recurrent, job.name)(*job.inputs, states, cuts.plan())
    expected = getattr(reference, job.name)(*job.inputs, expected_states, cuts.plan())
    at_once = getattr(cpu_recurrent, job.name)(*job.inputs, whole_states, whole(cuts).plan())
    tolerance = 1e-4 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(states, expected_states, rtol=1e-4, atol=1e-4)
    assert torch.equal(out, at_once)
    assert torch.equal(states[cuts.final_slots()], whole_states[whole(cuts).final_slots()])


@settings(max_examples=8)
@given(cut_texts(most=20), st.integers(0, 1000), st.sampled_from([5, 72]), st.integers(2, 4))
def test_convolution_in_triton(device: torch.device, cuts: Cuts, seed: int, channels: int, width: int) -> None:
    from phloem.kernels.triton import recurrent as triton_recurrent

    job = convolution(cuts, seed, channels, width)
    states, expected_states = job.states().to(device), job.states()
    given_bias = None if job.bias is None else job.bias.to(device)
    out = triton_recurrent.convolve(
        job.x.to(device), job.weight.to(device), given_bias, states, cuts.plan(device), silu=job.silu
    )
    expected = reference.convolve(job.x, job.weight, job.bias, expected_states, cuts.plan(), silu=job.silu)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(states.cpu(), expected_states)


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


def on_device(x: Any, device: torch.device) -> Any:
    if isinstance(x, HeadInputs):
        return HeadInputs(*(on_device(getattr(x, field.name), device) for field in fields(x)))
    return x.to(device) if isinstance(x, Tensor) else x


def check_in_triton(device: torch.device, cuts: Cuts, job: Rule) -> None:
    from phloem.kernels.triton import recurrent as triton_recurrent

    states, expected_states = job.states().to(device), job.states()
    given = [on_device(x, device) for x in job.inputs]
    out = getattr(triton_recurrent, job.name)(*given, states, cuts.plan(device))
    expected = getattr(reference, job.name)(*job.inputs, expected_states, cuts.plan())
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(states.cpu(), expected_states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [5, 8])
def test_odd_widths_go_through_the_reference(width: int) -> None:
    """Compiled loops read whole vectors."""
    cuts = Cuts([3], [[(0, 3, ZEROS, 0)]])
    job = convolution(cuts, 1, width, 3)
    out = recurrent.convolve(job.x, job.weight, job.bias, job.states(), cuts.plan(), silu=True)
    expected = reference.convolve(job.x, job.weight, job.bias, job.states(), cuts.plan(), silu=True)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
