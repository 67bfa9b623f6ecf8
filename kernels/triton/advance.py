"""Steps of byte automata on a GPU: each lane walks over the bytes of its row's token.

A step is a chain of as many dependent loads as the token has bytes (five on average, from a table of a few KB that
stays in the first cache), so it costs a few microseconds whatever the number of rows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..automata import Automata

LANES = 32


@triton.jit(do_not_specialize=("num_rows",))  # type: ignore[untyped-decorator]  # triton has no types
def walk_tokens(
    token_ids_ptr: tl.tensor,  # [R] int64
    states_ptr: tl.tensor,  # [R] int32
    automaton_ids_ptr: tl.tensor,  # [R] int32
    mask_rows_ptr: tl.tensor,  # [R] int32
    classes_ptr: tl.tensor,  # [K, 256] uint8
    table_ptr: tl.tensor,  # int32
    ends_ptr: tl.tensor,  # [K] int32
    token_bytes_ptr: tl.tensor,  # uint8
    token_offsets_ptr: tl.tensor,  # [V + 1] int32
    num_rows: tl.tensor,
    LANES: tl.constexpr,
) -> None:
    """Moves LANES rows on by their tokens."""
    row = tl.program_id(0) * LANES + tl.arange(0, LANES)
    automaton = tl.load(automaton_ids_ptr + row, mask=row < num_rows, other=-1)
    is_bound = automaton >= 0
    token = tl.load(token_ids_ptr + row, mask=is_bound, other=-1)
    state = tl.load(states_ptr + row, mask=is_bound, other=0)
    begin = tl.load(token_offsets_ptr + token, mask=token >= 0, other=0)
    size = tl.load(token_offsets_ptr + token + 1, mask=token >= 0, other=0) - begin
    end = tl.load(ends_ptr + automaton, mask=is_bound, other=0)
    state = tl.where(size > 0, state, end)
    classes = classes_ptr + automaton.to(tl.int64) * 256
    for i in range(tl.max(size, 0)):
        is_inside = i < size
        byte = tl.load(token_bytes_ptr + begin + i, mask=is_inside, other=0).to(tl.int32)
        step = tl.load(classes + byte, mask=is_inside, other=0).to(tl.int32)
        state = tl.load(table_ptr + state + step, mask=is_inside, other=0) + tl.where(is_inside, 0, state)
    tl.store(states_ptr + row, state, mask=is_bound)
    tl.store(mask_rows_ptr + row, tl.load(table_ptr + state, mask=is_bound, other=0), mask=is_bound)


def advance_states(
    token_ids: Tensor, states: Tensor, automaton_ids: Tensor, mask_rows: Tensor, automata: Automata
) -> None:
    """`reference.advance_states` on the device."""
    num_rows = len(token_ids)
    if num_rows:
        walk_tokens[(triton.cdiv(num_rows, LANES),)](
            token_ids,
            states,
            automaton_ids,
            mask_rows,
            automata.classes,
            automata.table,
            automata.ends,
            automata.token_bytes,
            automata.token_offsets,
            num_rows,
            LANES=LANES,
            num_warps=1,
        )
