"""In which order biases, penalties and filters count: as in vLLM's sampler, and where transformers' order differs.

Both distributions are written here in plain torch from their documentation (vLLM: `vllm.v1.sample.sampler.Sampler`;
transformers: `GenerationMixin._get_logits_processor`, which knows neither presence nor frequency penalties). Values and
factors are small multiples of powers of two, so that float32 computes edits without rounding, and thresholds lie
halfway between two tokens: the distributions are compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from phloem.kernels import LogitEdits
from phloem.kernels.plain import sample as reference_sample

from ..sample_rows import Rows, implementation, rows_of

VOCAB_SIZE = 12
NONE = torch.full((VOCAB_SIZE,), -torch.inf, dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """One row. `in_prompt`, `count`, `bias` are by token."""

    logits: Tensor
    bias: Tensor
    in_prompt: Tensor
    count: Tensor
    repetition: float
    presence: float
    frequency: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float


def repeated(x: Tensor, case: Case) -> Tensor:
    seen = case.in_prompt | (case.count > 0)
    return torch.where(seen, torch.where(x > 0, x / case.repetition, x * case.repetition), x)


def without_improbable(x: Tensor, min_p: float) -> Tensor:
    p = x.softmax(0)
    return torch.where(p >= min_p * p.max(), x, NONE)


def without_others_than_top_k(x: Tensor, k: int) -> Tensor:
    return x if k == 0 else torch.where(x >= x.topk(k).values[-1], x, NONE)


def without_tail(x: Tensor, top_p: float) -> Tensor:
    """Tokens in order of probability, until they reach `top_p` together."""
    if top_p == 1:
        return x
    order = x.argsort(descending=True)
    p = x.softmax(0)[order]
    kept = order[p.cumsum(0) - p < top_p]
    return NONE.clone().index_copy(0, kept, x[kept])


def vllm_edits(case: Case) -> Tensor:
    """Steps 5b to 6c: bias, repetition, frequency, presence."""
    x = repeated(case.logits + case.bias, case)
    return x - case.frequency * case.count - case.presence * (case.count > 0)


def vllm_scores(case: Case) -> Tensor:
    """Steps 7b to 7d: temperature, min-p, top-k, top-p."""
    x = without_improbable(vllm_edits(case) / case.temperature, case.min_p)
    return without_tail(without_others_than_top_k(x, case.top_k), case.top_p)


def transformers_scores(case: Case) -> Tensor:
    """Bias, repetition; temperature, top-k, top-p, min-p."""
    x = repeated(case.logits + case.bias, case) / case.temperature
    return without_improbable(without_tail(without_others_than_top_k(x, case.top_k), case.top_p), case.min_p)


def random_case(random: torch.Generator, *, penalties: bool = True, min_p: bool = True) -> Case:
    """Logits and biases are multiples of 1/8 and no two scores are equal; the other values are halves and quarters."""

    def choose(*values: float) -> float:
        return values[int(torch.randint(len(values), (), generator=random))]

    def flags() -> Tensor:
        return torch.rand(VOCAB_SIZE, generator=random) < 0.4

    logits = (torch.randperm(80, generator=random)[:VOCAB_SIZE] - 40).double() / 8 + 1 / 64
    bias = torch.randint(-16, 17, (VOCAB_SIZE,), generator=random).double() / 8 * flags()
    count = torch.randint(1, 4, (VOCAB_SIZE,), generator=random) * flags()
    case = Case(logits, bias, flags(), count, choose(0.5, 1, 2, 4), 0, 0, choose(0.5, 1, 2, 4), 0, 1, 0)
    if penalties:
        case = replace(case, presence=choose(-1, 0, 0.5), frequency=choose(-0.25, 0, 0.75))
    if len(vllm_edits(case).unique()) < VOCAB_SIZE:  # ties stay or go together here, and as they were sorted there
        return random_case(random, penalties=penalties, min_p=min_p)
    p = (vllm_edits(case) / case.temperature).softmax(0).sort(descending=True).values
    at = int(choose(*range(1, VOCAB_SIZE - 2)))
    between = float((p[at] * p[at + 1]).sqrt() / p[0])
    case = replace(case, min_p=between if min_p and choose(0, 1) else 0, top_k=int(choose(0, 3, 5, 8)))
    scores = without_others_than_top_k(
        without_improbable((vllm_edits(case) / case.temperature), case.min_p), case.top_k
    )
    left = scores.softmax(0).sort(descending=True).values.cumsum(0)
    at = int(choose(*range(5)))
    has_top_p = choose(0, 1) and left[at + 1] - left[at] > 1e-3  # or float32 could not tell them apart
    return replace(case, top_p=float((left[at] + left[at + 1]) / 2) if has_top_p else 1)


def rows_with(cases: list[Case]) -> Rows:
    """The cases as arguments of `sample`."""

    def column(name: str) -> Tensor:
        return torch.tensor([float(getattr(case, name)) for case in cases])

    own = torch.arange(len(cases), dtype=torch.int32)
    stored = [case.count - 0x8000 * case.in_prompt.long() for case in cases]
    edits = LogitEdits(
        torch.stack(stored).to(torch.int16),
        own,
        column("repetition"),
        column("presence"),
        column("frequency"),
        torch.empty((len(cases), 0), dtype=torch.int32),
        torch.stack([case.bias for case in cases]).float(),
        own,
    )
    return replace(
        rows_of(torch.stack([case.logits for case in cases]).float()),
        temperature=column("temperature"),
        top_k=column("top_k").to(torch.int32),
        top_p=column("top_p"),
        min_p=column("min_p"),
        edits=edits,
    )


def kept_by_twin(rows: Rows) -> tuple[Tensor, Tensor]:
    """Edited logits, and which tokens the filters keep."""
    edited = reference_sample.edited(rows.logits, rows.edits)
    scores = edited / rows.temperature[:, None]
    kept = reference_sample.thresholds(scores, rows.top_k, rows.top_p, rows.min_p).kept
    return edited, scores >= kept[:, None]


def test_edits_and_filters_are_vllms_exactly() -> None:
    random = torch.Generator().manual_seed(1)
    cases = [random_case(random) for _ in range(600)]
    edited, kept = kept_by_twin(rows_with(cases))
    assert torch.equal(edited.double(), torch.stack([vllm_edits(case) for case in cases]))
    assert torch.equal(kept, torch.stack([vllm_scores(case) for case in cases]) > -torch.inf)


def test_transformers_differs_only_where_min_p_and_top_p_meet() -> None:
    random = torch.Generator().manual_seed(2)
    alike = [random_case(random, penalties=False, min_p=False) for _ in range(200)]
    both = [case for _ in range(300) if (case := random_case(random, penalties=False)).min_p and case.top_p < 1]
    for cases, same in ((alike, True), (both, False)):
        kept = kept_by_twin(rows_with(cases))[1]
        theirs = torch.stack([transformers_scores(case) for case in cases]) > -torch.inf
        assert torch.equal(kept, theirs) == same
        assert (kept <= theirs).all()  # top-p keeps no more of what min-p has thinned out


@pytest.mark.parametrize("path", ["reference", "cpu", "triton"])
@pytest.mark.parametrize("num_top", [None, 2], ids=["tokens", "logprobs"])
def test_every_path_biases_first(path: str, num_top: int | None, device: torch.device) -> None:
    """(2 + 2) / 2 = 2 is less than the other token's 2.5; 2 / 2 + 2 = 3 would be more."""
    logits = torch.tensor([2.0, 2.5]).double()
    plain = Case(logits, torch.zeros(2), torch.zeros(2) > 0, torch.zeros(2).long(), 2.0, 0, 0, 1, 0, 1, 0)
    seen = replace(plain, bias=torch.tensor([2.0, 0.0]), in_prompt=torch.tensor([True, False]))
    rows = rows_with([seen])
    chosen, found = implementation(path, device)(replace(rows, temperature=torch.zeros(1)), num_top)
    assert chosen.tolist() == [1]
    if found is not None:  # those of the raw logits
        assert found.top_ids.tolist() == [[1, 0]]
        torch.testing.assert_close(found.chosen[0], logits.log_softmax(0)[1].float())


@pytest.mark.parametrize("path", ["reference", "cpu", "triton"])
@pytest.mark.parametrize("num_top", [None, 2], ids=["tokens", "logprobs"])
def test_every_path_thins_by_min_p_before_top_p(path: str, num_top: int | None, device: torch.device) -> None:
    """Of 0.4, 0.3, 0.2 and 0.1 min-p leaves 0.9, of which 0.7 is more than three quarters: 0.2 goes. With top-p first,
    0.7 would be less than three quarters of 1."""
    logits = torch.tensor([0.2, 0.4, 0.1, 0.3]).log().expand(12, 4).contiguous()
    rows = rows_of(logits, top_p=0.75, min_p=0.4)
    chosen, _ = implementation(path, device)(rows, num_top)
    assert set(chosen.tolist()) == {1, 3}
    assert 0 in implementation(path, device)(replace(rows, top_p=torch.full((12,), 0.8)), num_top)[0]  # 0.7 < 0.8 * 0.9
