"""Sampling in plain torch: the reference that the fast paths are tested against. Re-exported by `plain/ops.py`.

Tokens are drawn from the softmax of the scores over the tokens that stay, by a pure function of the row's arguments.
Noise would be needed for every token if each drew its own (Gumbel-max); by the chain rule a group of 128 neighbours
can draw first, by its total mass, and then one token within it, by its own::

    group    argmax over g of  log(mass of g) + noise(seed, position, g)
    token    argmax over t in g of   score(t) + noise(seed, position, t)

which takes a thousand and 128 numbers for a vocabulary of 128k, and one pass over the logits for the masses. A filter
whose threshold is unknown (top-p) is a matter of rejection: what was drawn is kept if few enough are larger, else the
draw is repeated among the larger ones, with fresh noise. Both are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..logit_edits import MAX_COUNT, LogitEdits

GROUP = 128  # tokens that draw together, at absolute positions
PHILOX_ROUNDS = 7
LARGEST = 3.4028234663852886e38  # of fp32: +inf counts as this

_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


class SamplingRows(NamedTuple):
    """How the token of each row is chosen.

    Attributes:
        mask_rows: `[R]` int32, rows of the mask table, -1: unmasked.
        temperature: `[R]` fp32; 0 is argmax.
        top_k: `[R]` integer, 0: all.
        top_p, min_p: `[R]` fp32.
        seeds, positions: `[R]` int64, what a row's random numbers depend on.
    """

    mask_rows: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    positions: Tensor


class Logprobs(NamedTuple):
    """Natural-log probabilities under the softmax of the raw logits: unmasked, untempered, unedited.

    Attributes:
        chosen: `[R]` fp32, of the row's token; NaN where the token is -1.
        top_ids: `[R, N]` int64, the likeliest tokens, in order; the lower id first among equals, -1 for what is
            impossible. N is at most the size of the vocabulary.
        top: `[R, N]` fp32, theirs.
    """

    chosen: Tensor
    top_ids: Tensor
    top: Tensor

    def of_rows(self, rows: slice) -> Logprobs:
        """Those of some rows."""
        return Logprobs(*(values[rows] for values in self))


def allowed_tokens(mask_table: Tensor | None, mask_rows: Tensor, vocab_size: int) -> Tensor:
    """`[R, V]` bool: token t of row r is allowed iff bit `t & 31` of word `t >> 5` of its mask row is set."""
    if mask_table is None:
        return torch.ones(len(mask_rows), vocab_size, dtype=torch.bool, device=mask_rows.device)
    ids = torch.arange(vocab_size, device=mask_rows.device)
    words = mask_table[mask_rows.clamp(min=0).long()][:, ids >> 5]
    return ((words >> (ids & 31)) & 1).bool() | (mask_rows < 0)[:, None]


def edited(logits: Tensor, edits: LogitEdits | None) -> Tensor:
    """`[R, V]` fp32: the logits with biases, then penalties; see `logit_edits`."""
    x = logits.float()
    if edits is None:
        return x
    if len(edits.biases):
        biased = x + edits.biases[edits.bias_rows.clamp(min=0).long()]
        x = torch.where((edits.bias_rows >= 0)[:, None], biased, x)
    if len(edits.counts):
        stored = edits.counts[edits.count_rows.clamp(min=0).long()].int()
        count, in_prompt = stored & MAX_COUNT, stored < 0
        ids = torch.arange(x.shape[1], device=x.device)
        count = (count + (edits.drafted[:, :, None] == ids).sum(1)).clamp(max=MAX_COUNT)
        penalised = (edits.count_rows >= 0)[:, None]
        repetition = edits.repetition[:, None]
        repeated = torch.where(x > 0, x / repetition, x * repetition)
        x = torch.where(penalised & (in_prompt | (count > 0)), repeated, x)
        less = edits.presence[:, None] + edits.frequency[:, None] * count.float()
        x = torch.where(penalised & (count > 0), x - less, x)
    return x


def philox(seed: Tensor, position: Tensor, index: Tensor, stream: Tensor) -> Tensor:
    """`[4, ...]` int64 in `[0, 2^32)`: the output words of Philox4x32 with 7 rounds; broadcasts.

    Salmon et al., SC'11 (7 rounds pass BigCrush). Key: the halves of the seed. Counter: index, the low and the high
    half of the position, stream.
    """
    low = 0xFFFFFFFF
    zeros = torch.zeros_like(seed + position + index + stream)
    x = [index + zeros, (position & low) + zeros, ((position >> 32) & low) + zeros, stream + zeros]
    key = [(seed & low) + zeros, ((seed >> 32) & low) + zeros]
    for _ in range(PHILOX_ROUNDS):
        # a signed product wraps, but all its 64 bits are right
        a, b = x[0] * _PHILOX_MULTIPLIERS[0], x[2] * _PHILOX_MULTIPLIERS[1]
        x = [((b >> 32) & low) ^ x[1] ^ key[0], b & low, ((a >> 32) & low) ^ x[3] ^ key[1], a & low]
        key = [(key[0] + _PHILOX_WEYL[0]) & low, (key[1] + _PHILOX_WEYL[1]) & low]
    return torch.stack(x)


def gumbel_noise(seed: Tensor, position: Tensor, index: Tensor, stream: Tensor) -> Tensor:
    """Standard Gumbel noise, fp32, a pure function of its arguments; broadcasts.

    Round r of a draw takes stream 2 r for groups (index: the group) and 2 r + 1 for tokens (index: the token id).

    `-log(E)` with `E = -log(1 - u)` exponential and u uniform on a grid of 2^-32: taking the small end of E
    from small u keeps the upper tail, which decides the argmax, fine to 22.9 instead of 16.6.
    """
    u = (philox(seed, position, index, stream)[0].float() + 0.5) * 2.0**-32
    series = u * (1.0 + u * (0.5 + u * (1.0 / 3.0)))
    exact = -torch.log((1.0 - u).clamp(min=2.0**-25))
    return -torch.log(torch.where(u < 2.0**-7, series, exact))


class Thresholds(NamedTuple):
    """The scores below which tokens are dropped, `[R]` fp32.

    Attributes:
        known: by min-p and top-k; the first draw is among the tokens from here on.
        kept: by all filters; what is drawn is kept from here on.
    """

    known: Tensor
    kept: Tensor


def thresholds(scores: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Thresholds:
    """A token stays iff its score (tempered, -inf if masked) is `>=` its row's threshold.

    In the order of vLLM's sampler (`vllm/v1/sample/sampler.py`): min_p keeps tokens with at least min_p times the
    largest probability; top_k keeps the k largest scores (ties with the last are kept); top_p keeps a token iff the
    strictly larger ones hold less than p of the mass that the other two have left (so the largest always stays, and
    ties stay or go together). transformers has min_p last, so top_p keeps more there where min_p drops something.
    top_k 0, top_p >= 1 and min_p 0 are off.
    """
    ordered = scores.sort(-1, descending=True).values
    num_tokens = scores.shape[-1]
    k = torch.where((top_k > 0) & (top_k < num_tokens), top_k, num_tokens).long()
    kth = ordered.gather(-1, k[:, None] - 1)[:, 0]
    top = ordered[:, :1].clamp(min=-LARGEST)
    floor = top[:, 0] + torch.log(min_p)  # log(0) = -inf: off
    known = torch.maximum(kth, floor)
    mass = torch.where(ordered >= known[:, None], torch.exp(ordered - top), 0.0)
    before = mass.cumsum(-1) - mass
    reached = (before < top_p[:, None] * mass.sum(-1, keepdim=True)) & (mass > 0)
    last = reached.sum(-1).clamp(min=1) - 1
    nucleus = ordered.gather(-1, last[:, None])[:, 0]
    return Thresholds(known, torch.where(top_p < 1.0, torch.maximum(known, nucleus), known))


def draw(scores: Tensor, seeds: Tensor, positions: Tensor, stream: int) -> Tensor:
    """`[R]` int64: one sample of each row's softmax, as the module's docstring says; anything where all is -inf."""
    num_rows, vocab_size = scores.shape
    num_groups = -(-vocab_size // GROUP)
    padded = torch.full((num_rows, num_groups * GROUP), -math.inf, device=scores.device)
    padded[:, :vocab_size] = scores
    grouped = padded.view(num_rows, num_groups, GROUP)
    tops = grouped.amax(-1).clamp(min=-LARGEST)
    masses = torch.exp(grouped - tops[..., None]).sum(-1)
    seed, position, one = seeds[:, None], positions[:, None], torch.ones(1, dtype=torch.int64, device=scores.device)
    groups = torch.arange(num_groups, device=scores.device)
    noisy = tops + torch.log(masses) + gumbel_noise(seed, position, groups[None], one * stream)
    group = _first_largest(noisy)
    ids = group[:, None] * GROUP + torch.arange(GROUP, device=scores.device)
    within = grouped.gather(1, group[:, None, None].expand(-1, 1, GROUP))[:, 0]
    return group * GROUP + _first_largest(within + gumbel_noise(seed, position, ids, one * (stream + 1)))


def _first_largest(values: Tensor) -> Tensor:
    """`[R]`: the lowest index of the largest value of each row."""
    index = torch.arange(values.shape[1], device=values.device)
    return torch.where(values == values.max(-1, keepdim=True).values, index, values.shape[1]).min(-1).values


def sample(
    logits: Tensor,
    mask_table: Tensor | None,
    rows: SamplingRows,
    edits: LogitEdits | None = None,
    num_top: int | None = None,
) -> tuple[Tensor, Logprobs | None]:
    """Choose one token per row: logits `[R, V]` -> ids `[R]` int64, and their log-probabilities if num_top is given.

    An id is -1 where no token is allowed (NaN never is). mask_table `[M, W]` int32 bit rows. At temperature 0 the
    lowest id wins ties; otherwise an exact sample of the softmax of `edited logit / temperature` over the tokens that
    stay. A row's token depends on its own arguments only, never on the batch. num_top: how many of the likeliest tokens
    `Logprobs` reports.
    """
    vocab_size = logits.shape[1]
    greedy = rows.temperature <= 0
    scores = edited(logits, edits) / torch.where(greedy, 1.0, rows.temperature)[:, None]
    allowed = allowed_tokens(mask_table, rows.mask_rows, vocab_size) & ~scores.isnan()
    scores = scores.clamp(max=LARGEST).masked_fill(~allowed, -math.inf)
    known, kept = thresholds(scores, rows.top_k, rows.top_p, rows.min_p)
    open_scores = scores.masked_fill(scores < known[:, None], -math.inf)
    token_ids = _first_largest(scores)
    is_open = ~greedy & (scores.amax(-1) > -math.inf)
    stream = 0
    while is_open.any():
        drawn = draw(open_scores, rows.seeds, rows.positions, stream)
        token_ids = torch.where(is_open, drawn, token_ids)
        score = scores.gather(1, token_ids[:, None])
        is_open = is_open & (score[:, 0] < kept)
        open_scores = torch.where(is_open[:, None], open_scores.masked_fill(scores <= score, -math.inf), open_scores)
        stream += 2
    token_ids = torch.where(scores.amax(-1) > -math.inf, token_ids, -1)
    return token_ids, None if num_top is None else logprobs(logits, token_ids, num_top)


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """Log-probabilities of one token per row, and of the num_top likeliest: logits `[R, V]`, token_ids `[R]` int64."""
    return logprobs_in(torch.float32, logits, token_ids, num_top)


def logprobs_in(dtype: torch.dtype, logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """`logprobs` computed and returned in `dtype` (float64 serves as the yardstick in tests)."""
    values = logits.to(dtype)
    values = torch.where(values.isnan(), -math.inf, values.clamp(max=LARGEST))
    scores = torch.log_softmax(values, -1)
    order = values.sort(dim=-1, descending=True, stable=True).indices[:, :num_top]
    top = scores.gather(1, order)
    chosen = scores.gather(1, token_ids.clamp(min=0)[:, None])[:, 0]
    return Logprobs(torch.where(token_ids < 0, math.nan, chosen), torch.where(top > -math.inf, order, -1), top)
