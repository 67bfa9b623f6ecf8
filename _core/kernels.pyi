"""The CPU's loops over tensors, and their work lists (`kernels/core/`).

Addresses are those of dense fp32 unless said otherwise, 0 where there is none; sizes and strides count numbers. Nothing
is checked: callers pass tensors whose shapes they know. Loops that take long release the GIL, and any number of
threads may call at once.
"""

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int32]

WORTH_SHARING: int
"""Least number of multiply-adds for which a loop is shared with a team."""

class Team:
    """Threads that share the tasks of a loop. They are started when first needed, and end with the team."""

    num_threads: int
    """Threads that loops may use, the caller's included; 0: not set. Callers read it and pass it to each loop."""

    @property
    def num_helpers(self) -> int:
        """Threads of the team, without the caller's."""

    def take(self, num_threads: int) -> bool:
        """Takes the team if it is free, until `give_back`; returns whether it was. Loops take it by themselves."""

    def give_back(self) -> None: ...
    def forget(self) -> None:
        """Begins anew, without threads, after a fork."""

class Lists:
    """The work list of a step, as its layers' attention reads it."""

    def __init__(
        self, chain_starts: _Ints, items: _Ints, rows: _Ints, positions: _Ints, tables: _Ints, num_pairs: int, /
    ) -> None: ...

class Map:
    """A linear map, as `multiply` has it; the addresses have to stay valid."""

    def __init__(
        self, form: int, weight: int, packing: int, bias: int, scales: int, depth: int, num_panels: int,
        input_step: float, input_limit: float, /,
    ) -> None: ...  # fmt: skip

class DenseLayers:
    """Layers of a plain decoder; see `kernels/cpu/dense_layers.py`."""

    def __init__(
        self, num_heads: int, num_kv_heads: int, head_dim: int, gate: int, alpha: float, limit: float, eps: float,
        scale: float, soft_cap: float, /,
    ) -> None: ...  # fmt: skip
    def add(
        self, qkv: Map, o: Map, gate_up: Map, down: Map, q_norm: int, k_norm: int, mlp_norm: int, next_norm: int, /
    ) -> None: ...
    def run(
        self, team: Team, num_threads: int, lists: Lists, num_tokens: int, positions: int, slots: int, cos_sin: int,
        half: int, kv: list[int], block_stride: int, head_stride: int, slot_stride: int, block_size: int, stored: int,
        normed: int, residual: int, /,
    ) -> None:  # fmt: skip
        """normed, residual: `[num_tokens, hidden]`, overwritten. kv: four addresses for each layer."""

def multiply(
    team: Team, num_threads: int, form: int, x: int, x_stride: int, weight: int, packing: int, bias: int, scales: int,
    out: int, num_rows: int, depth: int, num_panels: int, input_step: float, input_limit: float, /,
) -> None:  # fmt: skip
    """x `[num_rows, depth]` -> out `[num_rows, 16 num_panels]`; packing as in `LinearWeight`.

    form: 0: the weight is widened, 1: it is int8, 2: inputs are rounded too. input_step, input_limit: as in
    `LinearWeight`, for form 1; a step below 0: None.
    """

def add_loras(
    team: Team, num_threads: int, most_work: int, segments: int, num_segments: int, layer: int, place: int, x: int,
    x_stride: int, out: int, out_stride: int, hidden: int, delta: int, /,
) -> None:  # fmt: skip
    """Adds the products of the adapters of `LoraPlan.table` to out; hidden, delta: memory for both products."""

def attend(
    team: Team, num_threads: int, lists: Lists, q: int, q_token: int, q_head: int, k: int, v: int, block_stride: int,
    head_stride: int, slot_stride: int, block_size: int, stored: int, k_scales: int, v_scales: int, out: int,
    num_tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, window: int, in_chunks: bool, sinks: int,
    scale: float, soft_cap: float, runs: int, num_runs: int, mass: int, /,
) -> None:  # fmt: skip
    """Attention of a step over paged KV; stored: 0: fp32, 1: int8, 2: fp8. window, soft_cap 0: none;
    in_chunks: the window is the chunk that a token is in.

    runs, mass: as `LayerMass.runs` and `sums`.
    """

def norm_rows(
    x: int, residual: int, total: int, weight: int, out: int, num_rows: int, width: int, x_stride: int,
    residual_stride: int, out_stride: int, eps: float, /,
) -> None:  # fmt: skip
    """RMS norm of x, or of x + residual, which goes to total."""

def rotate_heads(
    q: int, k: int, positions: int, cos_sin: int, num_tokens: int, num_heads: int, num_kv_heads: int, half: int,
    q_token: int, q_head: int, k_token: int, k_head: int, /,
) -> None:  # fmt: skip
    """Rotary embedding, in place; positions int64."""

def scatter_heads(
    x: int, cache: int, scales: int, slots: int, num_tokens: int, num_kv_heads: int, head_dim: int, block_size: int,
    x_token: int, x_head: int, block_stride: int, head_stride: int, slot_stride: int, stored: int, /,
) -> None:  # fmt: skip
    """Keys or values of a step into a cache of fp32, or with scales of int8, fp8 or int4; slots int64."""

def convolve(
    team: Team,
    num_threads: int,
    x: int,
    weight: int,
    bias: int,
    states: int,
    out: int,
    segments: int,
    num_segments: int,
    num_rows: int,
    x_stride: int,
    channels: int,
    width: int,
    has_silu: bool,
    /,
) -> None:
    """See `Convolution` in `kernels/core/loops.h`; bias 0: none."""

def advance_channels(
    team: Team,
    num_threads: int,
    x: int,
    a: int,
    b: int,
    c: int,
    rate: int,
    step_bias: int,
    skip: int,
    states: int,
    out: int,
    segments: int,
    num_segments: int,
    num_rows: int,
    x_stride: int,
    a_stride: int,
    bc_stride: int,
    channels: int,
    state_dim: int,
) -> None: ...
def advance_heads(
    team: Team,
    num_threads: int,
    q: int,
    k: int,
    v: int,
    a: int,
    b: int,
    rate: int,
    step_bias: int,
    skip: int,
    least: float,
    most: float,
    states: int,
    out: int,
    segments: int,
    num_segments: int,
    num_rows: int,
    qk_stride: int,
    v_stride: int,
    a_stride: int,
    b_stride: int,
    heads: int,
    key_heads: int,
    key_dim: int,
    value_dim: int,
    by_key: bool,
    /,
) -> None:
    """See `HeadStates` in `kernels/core/loops.h`; b 0: a state space, which alone has a skip."""

def gate_rows(
    gate_up: int, out: int, num_rows: int, width: int, stride: int, kind: int, alpha: float, limit: float, /
) -> None:
    """kind: 0: silu, 1: gelu_tanh, 2: clamped."""

def edit_rows(
    logits: int, num_rows: int, vocab_size: int, counts: int, biases: int, count_rows: int, bias_rows: int,
    repetition: int, presence: int, frequency: int, drafted: int, num_drafted: int, /,
) -> None:  # fmt: skip
    """Penalties and biases of `LogitEdits`, in place."""

def sample_rows(
    logits: int, num_rows: int, vocab_size: int, masks: int, mask_width: int, mask_rows: int, temperature: int,
    top_k: int, top_p: int, min_p: int, seeds: int, positions: int, token_ids: int, /,
) -> None:  # fmt: skip
    """A token of each row; mask_rows and top_k int32, seeds, positions and token_ids int64."""

def report_rows(
    logits: int, num_rows: int, vocab_size: int, token_ids: int, chosen: int, top_ids: int, top: int, num_top: int, /
) -> None:
    """Log-probabilities of a token of each row and of the num_top likeliest; ids int64."""

def pack_short(bits: int, item_bytes: int, num_outputs: int, num_inputs: int, panels: int, /) -> bool:
    """fp32 or bf16 `[num_outputs, num_inputs]` into panels of bf16; False where that would lose a bit."""

def pack_wide(bits: int, num_outputs: int, num_inputs: int, panels: int, /) -> None:
    """fp32 `[num_outputs, num_inputs]` into panels of fp32."""

def unpack_rows(
    panels: int, item_bytes: int, num_panels: int, rows: int, num_rows: int, num_inputs: int, out: int, /
) -> bool:
    """Rows (int64) of panels of fp32 or bf16 as fp32; False if a row does not exist."""

def unpack_grouped_rows(
    panels: int, num_panels: int, rows: int, num_rows: int, num_inputs: int, out: int, size: int, bits: int,
    has_offsets: bool, /,
) -> bool:  # fmt: skip
    """The same for integers in groups of `size` inputs."""

def plan_cpu_work(
    query_starts: _Ints, context_lens: _Ints, block_tables: _Ints, block_size: int, grid: int, shares: bool, /
) -> tuple[_Ints, _Ints, _Ints, _Ints, int]:
    """Items `[N, 6]`, chain starts, rows, positions and number of pairs of a step (`cpu.work.CpuWork`)."""

def plan_cuda_work(
    query_starts: _Ints, context_lens: _Ints, block_tables: _Ints, block_size: int, num_heads: int, num_kv_heads: int,
    classes: _Ints, split_size: int, num_processors: int, shares: bool, partial: float, launch: float, most_slots: int,
    max_sharing_rows: int, /,
) -> tuple[_Ints, _Ints, _Ints, _Ints, npt.NDArray[np.bool_], int]:  # fmt: skip
    """Items `[N, 8]`, rows, positions, slots `[T, 2]`, by request whether it is cut, and the number of slots."""

def write_items_and_tables(host: _Ints, begin: int, items: _Ints, block_tables: _Ints, num_blocks: _Ints, /) -> None:
    """Items from host[begin] on, and after them of each request num_blocks blocks of its table."""
