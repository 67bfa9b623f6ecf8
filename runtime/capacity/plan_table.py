"""A capacity plan as text for a terminal."""

from __future__ import annotations

from ..byte_text import bytes_text
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
    return "\n".join(lines)


def _facts(capacity: CapacityPlan) -> list[tuple[str, str]]:
    has_keys, is_cut = capacity.kv_bytes_per_token > 0, capacity.num_ranks > 1
    per_token, pool = "none: no layer keeps keys", f"none; {capacity.num_blocks:,} blocks number the tokens of states"
    if has_keys:
        number = f"{capacity.num_kv_parts} × layers × kv_heads × head_dim × bytes"
        per_token = f"{bytes_text(capacity.kv_bytes_per_token)} ({number})"
        pool = f"{bytes_text(capacity.pool_bytes)} = {capacity.num_blocks:,} blocks of {capacity.block_size} tokens"
    facts = [
        ("model", f"{capacity.architecture}, {_parameters(capacity.num_parameters)} parameters"),
        ("weights", bytes_text(capacity.weight_bytes) + (f" on each of {capacity.num_ranks} devices" * is_cut)),
    ]
    if capacity.adapter_bytes:
        facts.append(("adapters", bytes_text(capacity.adapter_bytes)))
    if capacity.draft_bytes:
        where, each = " on the first device alone" * is_cut, bytes_text(capacity.draft_bytes_per_token)
        facts.append(("draft model", f"{bytes_text(capacity.draft_bytes)}{where}, and {each} of the pool per token"))
    facts.append(("KV per token", per_token))
    if capacity.num_states:
        each = {2: "two", 3: "three"}[capacity.states_each]
        size = bytes_text(capacity.state_bytes)
        facts.append(("states", f"{capacity.num_states:,} of {size}, {each} for each running request"))
    if capacity.num_slots:
        size = bytes_text(capacity.slot_bytes)
        facts.append(("windows", f"{capacity.num_slots:,} slots of {size}, of layers with a window"))
    facts.append(("memory", "not given" if capacity.memory_bytes is None else bytes_text(capacity.memory_bytes)))
    facts += [("KV pool", pool), ("tokens", f"{capacity.num_tokens:,}")]
    if has_keys:  # tiers keep the parts of all ranks
        memory, token_bytes = capacity.host_memory_bytes, capacity.kv_bytes_per_token * capacity.num_ranks
        where = f"in {bytes_text(memory)} of host memory" if memory else "in each GiB of host memory or disk"
        facts.append(("below it", f"{(memory or 1 << 30) // token_bytes:,} tokens {where}"))
    return facts


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
