"""A capacity plan as text for a terminal."""

from __future__ import annotations

from ..byte_text import bytes_text
from ..number_types import KV_BITS, KV_SCALE_BYTES, ROUNDED_BITS
from .planner import CapacityPlan


def table(capacity: CapacityPlan) -> str:
    """The plan as text for a terminal, one fact per line and one line per length."""
    lines = [f"{name:<14}{value}" for name, value in _facts(capacity)]
    if capacity.num_blocks == 0:
        return "\n".join([*lines, "", _shortage(capacity)])
    sharing = f"sharing {capacity.prefix_len:,}"
    lines += ["", f"{'context':>10}{'blocks':>10}{'requests':>12}{sharing:>18}"]
    for row in capacity.lengths:
        shared = "-" if row.num_sharing_requests is None else f"{row.num_sharing_requests:,}"
        lines.append(f"{row.context_len:>10,}{row.num_blocks:>10,}{row.num_requests:>12,}{shared:>18}")
    by_states = [row.context_len for row in capacity.lengths if row.limited_by == "states"]
    if by_states:
        lines += [
            "",
            f"Up to {max(by_states):,} tokens, states bound the requests, not keys: --state-memory raises it.",
        ]
    return "\n".join(lines)


def _facts(capacity: CapacityPlan) -> list[tuple[str, str]]:
    has_keys, is_cut = capacity.kv_bytes_per_token > 0, capacity.num_ranks > 1
    each_rank = f" on each of {capacity.num_ranks} ranks" * is_cut
    facts = [
        ("model", f"{capacity.architecture}, {_parameters(capacity.num_parameters)} parameters"),
        ("weights", bytes_text(capacity.weight_bytes) + each_rank),
    ]
    if capacity.adapter_bytes:
        facts.append(("adapters", bytes_text(capacity.adapter_bytes)))
    if capacity.draft_bytes:
        where, each = " on rank 0 alone" * is_cut, bytes_text(capacity.draft_bytes_per_token)
        facts.append(("draft model", f"{bytes_text(capacity.draft_bytes)}{where}, and {each} of the pool per token"))
    facts += _kv_per_token(capacity, each_rank) if has_keys else [("KV per token", "none: no layer keeps keys")]
    if capacity.num_states:
        each = {2: "two", 3: "three"}[capacity.states_each]
        size, most = bytes_text(capacity.state_bytes), capacity.num_states // capacity.states_each
        number = f"{capacity.num_states:,} of {size}{each_rank}"
        facts.append(("states", f"{number}, {each} for each running request: room for {most:,}"))
    if capacity.num_slots:
        size, total = bytes_text(capacity.slot_bytes), bytes_text(capacity.num_slots * capacity.slot_bytes)
        facts.append(
            ("windows", f"{capacity.num_slots:,} slots of {size}, of layers with a window: {total} of the pool")
        )
    facts.append(("memory", "not given" if capacity.memory_bytes is None else bytes_text(capacity.memory_bytes)))
    pool = f"none; {capacity.num_blocks:,} blocks number the tokens of states"
    if has_keys:
        slots = f", and {capacity.num_slots:,} slots" * bool(capacity.num_slots)
        pool = (
            f"{bytes_text(capacity.pool_bytes)} = {capacity.num_blocks:,} blocks of {capacity.block_size} tokens{slots}"
        )
    facts += [("KV pool", pool), ("tokens", f"{capacity.num_tokens:,}")]
    if has_keys:  # tiers keep the parts of all ranks, of layers with a window what the last tokens need
        memory = capacity.host_memory_bytes
        token_bytes = (_in_blocks(capacity) or capacity.kv_bytes_per_token) * capacity.num_ranks
        where = f"in {bytes_text(memory)} of host memory" if memory else "in each GiB of host memory or disk"
        facts.append(("below it", f"{(memory or 1 << 30) // token_bytes:,} tokens {where}"))
    return facts


def _kv_per_token(capacity: CapacityPlan, each_rank: str) -> list[tuple[str, str]]:
    """How it is counted, and how much of it is where."""
    is_rounded, bits = capacity.kv_dtype in ROUNDED_BITS, KV_BITS[capacity.kv_dtype]
    kinds = []
    for kind in capacity.kv_layers:
        head = f"{kind.head_dim}" if not is_rounded else f"({kind.head_dim} × {bits} bits + {KV_SCALE_BYTES} bytes)"
        kinds.append(f"{_counted(kind.num_layers, 'layer')} × {_counted(kind.num_heads, 'KV head')} × {head}")
    formula = kinds[0] if len(kinds) == 1 else f"({' + '.join(kinds)})"
    if capacity.num_kv_parts > 1:
        formula = f"{capacity.num_kv_parts} × {formula}"
    if not is_rounded:
        formula += f" × {bits // 8} bytes"
    facts = [("KV per token", f"{bytes_text(capacity.kv_bytes_per_token)}{each_rank} ({formula})")]
    num_none = capacity.num_layers - sum(kind.num_layers for kind in capacity.kv_layers)
    if num_none:
        facts.append(("", f"{_counted(num_none, 'layer')} of {capacity.num_layers} keep no keys of their own"))
    if capacity.num_slots:
        inside = _in_blocks(capacity)
        apart = bytes_text(capacity.kv_bytes_per_token - inside)
        facts.append(
            ("", f"{bytes_text(inside)} in blocks, of every token; {apart} in slots, of tokens in windows alone")
        )
    return facts


def _in_blocks(capacity: CapacityPlan) -> int:
    """Bytes of a token in blocks of the pool: all, or those of layers without a window."""
    return capacity.kv_bytes_per_token - capacity.slot_bytes // capacity.block_size


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _shortage(capacity: CapacityPlan) -> str:
    needed = capacity.weight_bytes + capacity.adapter_bytes + capacity.draft_bytes
    if capacity.memory_bytes is not None and needed >= capacity.memory_bytes:
        missing = bytes_text(needed - capacity.memory_bytes)
        return f"The weights alone do not fit: {missing} are missing. Take a smaller model or a narrower type."
    return "The pool does not hold a single block. Give it more memory."


def _parameters(count: int) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= limit:
            return f"{count / limit:.2f}{unit}"
    return str(count)
