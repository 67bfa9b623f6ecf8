"""The reference of every op in plain torch: slow and obvious; the fast paths are tested against it.

Same names and signatures as `ops.py`. Nothing here is tuned; attention walks the requests one by one and
materialises the scores. It knows no Triton, no compiled loops and no cache policy.

Conventions shared by all paths:

* Sums, norms, softmax and noise are fp32 whatever the storage type; results are rounded once, at the end.
* Query row `i` of request `b` stands at absolute position `context_lens[b] - q_len[b] + i` and sees the
  keys at positions `<= ` its own (its own KV is already in the cache), within the window if there is one.
* A cache is `[num_blocks, num_kv_heads, block_size, head_dim]`; a slot is `block * block_size + offset`.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Required, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention_mass import LayerMass
from ..automata import Automata
from ..expert_choice import ExpertChoice
from ..gate import SILU, Gate
from ..linear_weight import LinearWeight, input_range
from ..linear_weights import LinearWeights
from ..lora import LoraPlan
from ..work_list import AttentionPlan
from .rounding import quantise_heads, quantise_rows, widen_heads
from .sample import Logprobs as Logprobs
from .sample import logprobs as logprobs
from .sample import sample as sample


def linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`x @ weight.T + bias`: x `[T, K]` -> `[T, N]`, summed in fp32.

    An int8 weight meets inputs rounded to whole multiples of their row's step, `largest |x| / input_range(K)`, or to
    eight bits where it has an `input_step`; their sums of products are exact whole numbers.
    """
    own = weight if weight.groups is None else weight.groups
    if own.input_step is not None:
        return _multiply_int8(x, weight, own.input_step, own.input_limit)
    if weight.scales is not None:
        most = x.abs().amax(-1, keepdim=True)
        limit = torch.full_like(most, input_range(weight.num_inputs))  # a tensor, for `number / tensor` rounds twice
        whole = (x * torch.where(most > 0, limit / most, 0.0)).round()
        levels = weight.stored.transpose(1, 2).flatten(2).flatten(0, 1)[: weight.num_outputs, : weight.num_inputs]
        sums = (whole.double() @ levels.double().T).float()
        assert weight.bias is not None
        outputs = slice(weight.num_outputs)
        return sums * (most / limit * weight.scales[outputs]) + weight.bias[outputs]
    product = x.float() @ weight.matrix().float().T
    if weight.bias is not None:
        product = product + weight.bias[: weight.num_outputs].float()
    return product.to(x.dtype)


def _multiply_int8(x: Tensor, weight: LinearWeight, input_step: float, input_limit: float) -> Tensor:
    rows, steps = quantise_rows(x, input_step, input_limit)
    if weight.groups is not None:
        assert weight.groups.factors is not None
        levels, scales = weight.stored.view(torch.int8), weight.groups.factors[0]
    else:
        assert weight.scales is not None
        levels = weight.stored.transpose(1, 2).flatten(2).flatten(0, 1)[: weight.num_outputs, : weight.num_inputs]
        scales = weight.scales[: weight.num_outputs]
    product = (rows.double() @ levels.double().T).float() * (steps[:, None] * scales)
    if weight.bias is not None:
        product = product + weight.bias[: weight.num_outputs].float()
    return product.to(x.dtype)


def add_lora(out: Tensor, x: Tensor, plan: LoraPlan, layer: int, place: int) -> None:
    """Adds to out `[T, N]`, IN PLACE, what the adapters of the plan's rows make of x `[T, K]`, summed in fp32.

    A part adds `scale * (x @ down.T) @ up.T` to its own outputs (LoRA, arXiv 2106.09685; many adapters in a step:
    Punica, arXiv 2310.18547). layer, place: where in the model, by number, the place as in `lora.PLACES`.
    """
    for segment in plan.segments:
        weight, rows = segment.layers.weights[layer][place], slice(segment.begin, segment.end)
        if weight is None:
            continue
        down = weight.down.matrix().float()
        hidden, first = (x[rows].float() @ down.T) * weight.scales[: len(down)], 0
        for up, output in zip(weight.ups, weight.first_outputs, strict=True):
            delta = hidden[:, first : first + up.num_inputs] @ up.matrix().float().T
            columns = slice(output, output + up.num_outputs)
            out[rows, columns] = (out[rows, columns].float() + delta).to(out.dtype)
            first += up.num_inputs


def linear_heads(x: Tensor, weight: LinearWeights) -> Tensor:
    """`x[:, h] @ weight[h].T` for every head: x `[T, H, K]` -> `[T, H, N]`, as `linear` would."""
    if weight.packed:
        return torch.stack([linear(x[:, head], packed) for head, packed in enumerate(weight.packed)], dim=1)
    return torch.einsum("thk,hnk->thn", x.float(), weight.matrices().float()).to(x.dtype)


def mix_experts(
    x: Tensor, chosen: Tensor, shares: Tensor, gate_up: LinearWeights, down: LinearWeights, *, gate: Gate = SILU
) -> Tensor:
    """The sum of each row's chosen experts, each times its share: x `[T, C]` -> `[T, C]`, rounded once at the end.

    chosen `[T, k]` int64, shares `[T, k]` fp32; expert e is `down[e](gated(gate_up[e](row)))`, with its biases; the
    sum of a row that chose E, which is none, is undefined: here zero.
    """
    total = torch.zeros(x.shape)
    for row, (experts, parts) in enumerate(zip(chosen.tolist(), shares, strict=True)):
        for expert, part in zip(experts, parts, strict=True):
            if expert < gate_up.num_maps:
                inner = gated(linear(x[row : row + 1], gate_up.one(expert)), gate)
                total[row] += linear(inner, down.one(expert))[0].float() * part
    return total.to(x.dtype)


def choose_experts(
    logits: Tensor, bias: Tensor | None, choice: ExpertChoice, slots: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The experts of each row, best first, equal ones by number, and their shares: `[T, k]` int64, `[T, k]` fp32.

    logits `[T, E]` fp32; bias `[E]` fp32, added to the scores for the choice alone. slots `[T]` int64: rows without one
    (below 0) choose E, which is none. A row's bits do not depend on the others.
    """
    is_softmax = choice.scoring == "softmax"
    scores = torch.softmax(logits, -1) if is_softmax else sigmoid(logits)
    wanted = scores if bias is None else scores + bias
    if choice.num_chosen_groups < choice.num_groups:
        groups = wanted.view(len(logits), choice.num_groups, -1)
        best = reduce(torch.add, groups.sort(dim=-1, descending=True).values[..., : choice.counts_top].unbind(-1))
        is_out = torch.ones_like(best, dtype=torch.bool)
        is_out.scatter_(1, _first(best, choice.num_chosen_groups), False)
        wanted = groups.masked_fill(is_out[:, :, None], float("-inf")).flatten(1)
    chosen = _first(wanted, choice.num_chosen)
    shares = scores.gather(1, chosen)
    if choice.normalises:  # a sum in one order, whatever the number of rows
        total = reduce(torch.add, shares.unbind(1))
        shares = shares / (total if is_softmax else total + 1e-20)[:, None]
    if slots is not None:
        chosen = chosen.masked_fill(slots[:, None] < 0, logits.shape[1])
    return chosen, shares * choice.scale if choice.scale != 1.0 else shares


def _first(values: Tensor, count: int) -> Tensor:
    """The places of the largest values of each row, equal ones from left to right, which topk does not promise."""
    return values.sort(dim=-1, descending=True, stable=True).indices[:, :count]


def sigmoid(x: Tensor) -> Tensor:
    """torch's own takes other instructions for the last numbers of a tensor on the CPU, with other last bits."""
    return torch.softmax(torch.stack([x, torch.zeros_like(x)], -1), -1)[..., 0]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis: x `[T, C]`, weight `[C]` -> `[T, C]`.

    Zhang & Sennrich 2019 (arXiv 1910.07467); the product with the weight is taken in fp32.
    """
    x32 = x.float()
    scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (x32 * scale * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual), x + residual)`; the sum is rounded to x.dtype before it is normed."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotate q `[T, H, D]` and k `[T, Hkv, D]` IN PLACE by their positions (Su et al., arXiv 2104.09864).

    positions `[T]` int64; cos_sin `[P, R]` fp32 with row `p` = `cos(R/2) | sin(R/2)`. Pairs are halves
    (NeoX / Hugging Face): element `i` turns with element `i + R/2`. With `R < D` only the first R elements
    of a head turn (partial rotary).
    """
    half = cos_sin.shape[-1] // 2
    rows = cos_sin[positions]
    cos, sin = rows[:, None, :half], rows[:, None, half:]
    for x in (q, k):
        low, high = x[..., :half].float(), x[..., half : 2 * half].float()
        # both sums before either store: for fp32, low and high are views of x
        turned = low * cos - high * sin, high * cos + low * sin
        x[..., :half], x[..., half : 2 * half] = turned[0].to(x.dtype), turned[1].to(x.dtype)


def gated(gate_up: Tensor, gate: Gate = SILU) -> Tensor:
    """gate_up `[T, 2F]` = gate | up -> `[T, F]`, by a formula of `gate.py`; without a gate `[T, F]` -> `[T, F]`."""
    if gate.kind == "relu2":
        return torch.relu(gate_up).square()
    x, up = gate_up.float().chunk(2, -1)
    if gate.kind == "clamped":
        x, up = x.clamp(max=gate.limit), up.clamp(-gate.limit, gate.limit) + 1
        x = x * torch.sigmoid(gate.alpha * x)
    elif gate.kind == "squared":
        x = torch.relu(x).square()
    else:
        x = F.gelu(x, approximate="tanh") if gate.kind == "gelu_tanh" else F.silu(x)
    return (x * up).to(gate_up.dtype)


def write_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> None:
    """Scatter k, v `[T, Hkv, D]` into the caches at slots `[T]` int64; negative slots are skipped.

    int8, fp8 and int4 caches come with scales `[num_blocks, Hkv, block_size]`, and each token's head is rounded to them
    (`kv_format`; ties to even).
    """
    block_size = k_cache.shape[2]
    kept = slots >= 0
    block, offset = slots[kept] // block_size, slots[kept] % block_size
    for x, cache, scales in ((k, k_cache, k_scales), (v, v_cache, v_scales)):
        if scales is None:
            cache[block, :, offset] = x[kept].to(cache.dtype)
        else:
            stored, scale = quantise_heads(x[kept], cache.dtype)
            # fp8 has no scatter of its own: bytes are bytes
            cache.view(torch.int8)[block, :, offset] = stored.view(torch.int8)
            scales[block, :, offset] = scale


def place_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    cos_sin: Tensor | None,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> Tensor:
    """Queries as attention reads them, `[T, H, D]`; keys and values go into the caches, as `write_kv` puts them there.

    q `[T, H, D]` and k `[T, Hkv, D]` go through `rms_norm`, head by head, with norms (of q, of k; `[D]` each) if there
    are any, and turn by `apply_rope` if there is cos_sin. What they hold afterwards is undefined.
    """
    if norms is not None:
        q, k = rms_norm(q, norms[0], eps), rms_norm(k, norms[1], eps)
    if cos_sin is not None:
        apply_rope(q, k, positions, cos_sin)
    write_kv(k, v, k_cache, v_cache, slots, k_scales, v_scales)
    return q


def gather_kv(cache: Tensor, block_table: Tensor, num_keys: int, scales: Tensor | None = None) -> Tensor:
    """The first num_keys keys (or values) of one request: `[num_keys, Hkv, D]`, a copy; fp32 if there are scales."""
    block_size = cache.shape[2]
    indices = block_table[: -(-num_keys // block_size)].long()
    if scales is None:
        blocks = cache[indices]
    else:
        blocks = widen_heads(cache.view(torch.int8)[indices].view(cache.dtype), scales[indices])
    return blocks.transpose(1, 2).flatten(0, 1)[:num_keys]


class AttentionOptions(TypedDict, total=False):
    """What attention is given besides queries, keys and values, by the names of `attention_in`."""

    scale: Required[float]
    window: int
    in_chunks: bool
    soft_cap: float
    sinks: Tensor | None
    k_scales: Tensor | None
    v_scales: Tensor | None
    mass: LayerMass | None


def attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, plan: AttentionPlan, **options: Unpack[AttentionOptions]
) -> Tensor:
    """Causal attention of a ragged batch over its paged KV. q `[T, H, D]` -> `[T, H, D]` of q.dtype."""
    return attention_in(torch.float32, q, k_cache, v_cache, plan, **options).to(q.dtype)


def attention_in(
    dtype: torch.dtype,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    plan: AttentionPlan,
    *,
    scale: float,
    window: int = 0,
    in_chunks: bool = False,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
    mass: LayerMass | None = None,
) -> Tensor:
    """`attention` computed and returned in `dtype` (float64 serves as the yardstick in tests).

    window > 0: a row at position p sees keys `> p - window`, or with in_chunks those of its chunk, `>= p - p % window`
    (Llama 4). soft_cap > 0: scores become `soft_cap * tanh(scores / soft_cap)` (Gemma 2). sinks `[H]`: one more logit
    per head that takes part in the softmax and carries no value (gpt-oss). k_scales, v_scales: those that `write_kv`
    filled, where the caches are int8, fp8 or int4. mass: the attention that rows of its runs pay to keys is added to
    its sums.
    """
    out = torch.zeros(q.shape, dtype=dtype, device=q.device)
    group = q.shape[1] // k_cache.shape[1]
    for b in range(plan.num_requests):
        begin, end = int(plan.query_starts[b]), int(plan.query_starts[b + 1])
        num_keys = int(plan.context_lens[b])
        if end == begin:
            continue
        table = torch.from_numpy(plan.block_tables[b]).to(q.device)
        k = gather_kv(k_cache, table, num_keys, k_scales).to(dtype).repeat_interleave(group, dim=1)
        v = gather_kv(v_cache, table, num_keys, v_scales).to(dtype).repeat_interleave(group, dim=1)
        scores = torch.einsum("thd,nhd->htn", q[begin:end].to(dtype), k) * scale
        if soft_cap > 0:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        row = torch.arange(num_keys - (end - begin), num_keys, device=q.device)[:, None]
        key = torch.arange(num_keys, device=q.device)[None, :]
        visible = key <= row
        if window > 0:
            visible &= key >= (row // window * window if in_chunks else row - window + 1)
        scores = scores.masked_fill(~visible, -math.inf)
        if sinks is not None:
            sink = sinks.to(dtype)[:, None, None].expand(-1, end - begin, 1)
            scores = torch.cat([scores, sink], dim=-1)
        p = torch.softmax(scores, -1)[..., :num_keys]
        out[begin:end] = torch.einsum("htn,nhd->thd", p, v)
        for index, (first, last, num_seen, _) in enumerate([] if mass is None else mass.runs.tolist()):
            if mass is not None and begin <= first < end:
                mass.add(index, p[:, first - begin : last - begin, :num_seen].float())
    return out


def write_latents(latents: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Scatter latents `[T, W]` into cache `[num_blocks, block_size, W]` at slots `[T]`; negative slots are skipped."""
    kept = slots >= 0
    cache[slots[kept] // cache.shape[1], slots[kept] % cache.shape[1]] = latents[kept].to(cache.dtype)


def latent_attention(
    q: Tensor, cache: Tensor, plan: AttentionPlan, *, scale: float, rank: int, mass: LayerMass | None = None
) -> Tensor:
    """Causal attention over latents: q `[T, H, W]`, cache `[num_blocks, block_size, W]` -> `[T, H, rank]`.

    All heads see the same keys, the stored vectors; their first `rank` numbers are the values (MLA with absorbed
    projections, arXiv 2405.04434). The plan is one of a single KV head, head_dim W.
    """
    stored = cache[:, None]
    return attention(q, stored, stored, plan, scale=scale, mass=mass)[..., :rank]


def advance_states(
    token_ids: Tensor, states: Tensor, automaton_ids: Tensor, mask_rows: Tensor, automata: Automata
) -> None:
    """Moves byte automata on by one token each and writes the mask rows that hold then; in place.

    token_ids `[R]` int64, states, automaton_ids, mask_rows `[R]` int32. Rows whose automaton is -1 are left as they
    are. A token without bytes, or -1, leads to the end, and so does one that the mask does not allow.
    """
    for row, (token, automaton) in enumerate(zip(token_ids.tolist(), automaton_ids.tolist(), strict=True)):
        if automaton < 0:
            continue
        begin, end = automata.token_offsets[token : token + 2].tolist() if token >= 0 else (0, 0)
        state = int(states[row] if end > begin else automata.ends[automaton])
        for byte in automata.token_bytes[begin:end].tolist():
            state = int(automata.table[state + int(automata.classes[automaton, byte])])
        states[row] = state
        mask_rows[row] = automata.table[state]
