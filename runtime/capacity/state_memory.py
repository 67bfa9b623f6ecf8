"""How many states of recurrent layers there are, from the settings and the memory alone.

A running request needs two, the one that a step reads and the one that it writes; with tiers below the pool a third,
the last at the end of a block. The others are kept for requests that share a prefix; a step that runs ahead takes one
more for each of its requests from these, and does not run ahead where none is left.
"""

from __future__ import annotations

from ...errors import ConfigError
from ..models import ModelConfig

GPU_SHARE = 0.5  # of what `kv_memory_share` names, for states; the pool of KV has its share of what they leave
KEPT_EACH = 2  # states for each request that may run, besides those that it needs
LEAST_KEPT = 16


def needed_each(has_tiers: bool) -> int:
    """States that a running request needs."""
    return 3 if has_tiers else 2


def num_states(
    state_bytes: int, running: int, memory: int | None, *, each: int = 2, free: float | None, least: int
) -> int:
    """States of `state_bytes` each, for n running requests.

    Args:
        each: that a running request needs.
        memory: what the settings set aside; None: a share of what is free, and no more than are of use.
        free: bytes of a GPU that KV and states may take together; None: on a CPU.
        least: bytes that are set aside on a CPU in any case.
    """
    if memory is None:
        wanted = (each * running + max(LEAST_KEPT, KEPT_EACH * running)) * state_bytes
        room = max(least, (each + LEAST_KEPT) * state_bytes) if free is None else int(free * GPU_SHARE)
        memory = min(room, wanted)
    return memory // state_bytes


def most_running(num_slots: int, each: int) -> int:
    """Requests that n slots are enough for."""
    return num_slots // each


def check_number(num_slots: int, each: int, state_bytes: int) -> None:
    """Raises ConfigError: n states are not enough for one request."""
    if num_slots < each:
        number = "two" if each == 2 else "three"
        raise ConfigError(
            f"state_memory_bytes: the memory does not hold the {number} states of one request, of {state_bytes} bytes "
            "each; raise it"
        )


def check_tiers(model: ModelConfig) -> None:
    """Raises ConfigError: with recurrent layers alone, this model's blocks cannot be kept in tiers below the pool."""
    if model.recurrent is not None and not model.num_kv_layers:
        raise ConfigError(
            f"{model.architecture} has no layers with keys, of which tiers below the pool keep blocks; "
            "leave host_memory_bytes, disk_cache and shared_cache out"
        )
