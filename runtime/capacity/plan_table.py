"""A plan of what fits, as text for a terminal."""

from __future__ import annotations

from .planner import CapacityPlan


def table(capacity: CapacityPlan) -> str:
    """The plan as text for a terminal, one fact per line and one line per length."""
    is_cut = capacity.num_ranks > 1
    facts = [
        ("model", f"{capacity.architecture}, {_parameters(capacity.num_parameters)} parameters"),
        ("weights", _bytes(capacity.weight_bytes) + (f" on each of {capacity.num_ranks} devices" * is_cut)),
        *([("adapters", _bytes(capacity.adapter_bytes))] if capacity.adapter_bytes else []),
        (
            "KV per token",
            f"{_bytes(capacity.kv_bytes_per_token)} ({capacity.num_kv_parts} × layers × kv_heads × head_dim × bytes)",
        ),
        *(
            [("states", f"{capacity.num_states:,} of {_bytes(capacity.state_bytes)}, two for each running request")]
            if capacity.num_states
            else []
        ),
        *(
            [("windows", f"{capacity.num_slots:,} slots of {_bytes(capacity.slot_bytes)}, of layers with a window")]
            if capacity.num_slots
            else []
        ),
        ("memory", "not given" if capacity.memory_bytes is None else _bytes(capacity.memory_bytes)),
        ("KV pool", f"{_bytes(capacity.pool_bytes)} = {capacity.num_blocks:,} blocks of {capacity.block_size} tokens"),
        ("tokens", f"{capacity.num_tokens:,}"),
    ]
    if capacity.kv_bytes_per_token and not (is_cut and capacity.num_states):  # tiers keep the parts of all ranks
        num_tokens = (1 << 30) // (capacity.kv_bytes_per_token * capacity.num_ranks)
        facts.append(("below it", f"{num_tokens:,} tokens in each GiB of host memory or disk"))
    lines = [f"{name:<14}{value}" for name, value in facts]
    if capacity.num_blocks == 0:
        return "\n".join([*lines, "", _shortage(capacity)])
    sharing = f"sharing {capacity.prefix_len:,}"
    lines += ["", f"{'context':>10}{'blocks':>10}{'requests':>12}{sharing:>18}"]
    for row in capacity.lengths:
        shared = "-" if row.num_sharing_requests is None else f"{row.num_sharing_requests:,}"
        lines.append(f"{row.context_len:>10,}{row.num_blocks:>10,}{row.num_requests:>12,}{shared:>18}")
    return "\n".join(lines)


def _shortage(capacity: CapacityPlan) -> str:
    needed = capacity.weight_bytes + capacity.adapter_bytes
    if capacity.memory_bytes is not None and needed >= capacity.memory_bytes:
        missing = _bytes(needed - capacity.memory_bytes)
        return f"The weights alone do not fit: {missing} are missing. Take a smaller model or a narrower type."
    return "The pool does not hold a single block. Give it more memory."


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:,.2f} GiB"


def _parameters(count: int) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= limit:
            return f"{count / limit:.2f}{unit}"
    return str(count)
