"""The work lists: every (row, visible key) exactly once, whatever is shared, cut or chunked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import cuda_work as cuda
from phloem.kernels import plan_attention
from phloem.kernels.cpu import work as cpu
from phloem.kernels.launch import SPLIT_SIZE, SharingCosts, folds_splits
from phloem.kernels.work_buffers import MERGE_ENTRY, CudaWork

Array = np.ndarray[Any, Any]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Array, Array, Array, int]:
    """(query_starts, context_lens, block_tables, block_size) of requests on a random tree of shared blocks."""
    block_size = draw(st.sampled_from([1, 16, 64]))
    num_blocks = -(-700 // block_size) + 40 // block_size + 1
    tables: list[Array] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 6))):
        table = np.arange(fresh, fresh + num_blocks, dtype=np.int32)
        fresh += num_blocks
        if tables and draw(st.booleans()):
            donor = draw(st.sampled_from(tables))
            shared = draw(st.integers(0, 640)) // block_size
            table[:shared] = donor[:shared]
        tables.append(table)
    q_lens = [draw(st.sampled_from([0, 1, 1, 1, 3, 40])) for _ in tables]
    context_lens = [q + draw(st.integers(0 if q else 1, 660)) for q in q_lens]
    starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)
    return starts, np.array(context_lens, np.int32), np.stack(tables), block_size


def _key_ids(batch: tuple[Array, Array, Array, int], request: int, begin: int, end: int) -> list[tuple[int, int]]:
    """(block, offset) of keys begin to end - 1 of a request: what it really reads."""
    _, _, tables, block_size = batch
    return [(int(tables[request, n // block_size]), n % block_size) for n in range(begin, end)]


def _wanted(batch: tuple[Array, Array, Array, int]) -> dict[int, list[tuple[int, int]]]:
    """token -> the keys it must see, in order."""
    starts, context_lens, _, _ = batch
    wanted = {}
    for b, context_len in enumerate(context_lens):
        q_len = starts[b + 1] - starts[b]
        for i in range(q_len):
            wanted[int(starts[b]) + i] = _key_ids(batch, b, 0, int(context_len - q_len + i + 1))
    return wanted


def cuda_work(starts: Any, lens: Any, tables: Array, block_size: int = 16, **options: Any) -> CudaWork:
    """For eight query heads and two of keys, of 128 numbers, on one processor, unless `options` say otherwise."""
    common: dict[str, Any] = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 128, "num_processors": 1}
    common |= {"share": True, "deterministic": False, "device": torch.device("cpu")}
    starts, lens = np.asarray(starts, np.int32), np.asarray(lens, np.int32)
    return cuda.plan_cuda_work(starts, lens, tables, block_size=block_size, **{**common, **options})


@settings(max_examples=60, deadline=None)
@given(batch=batches(), share=st.booleans())
def test_cpu_chains_cover_every_key_of_every_row_once_in_order(
    batch: tuple[Array, Array, Array, int], share: bool
) -> None:
    work = cpu.plan_cpu_work(*batch, share)
    seen: dict[int, list[tuple[int, int]]] = {token: [] for token in range(batch[0][-1])}
    closed: list[int] = []
    for table, begin, end, row_begin, row_end, is_last in work.items.tolist():
        assert begin % cpu.TILE == 0
        for token, position in zip(work.rows[row_begin:row_end], work.positions[row_begin:row_end], strict=True):
            assert token not in closed
            seen[int(token)] += _key_ids(batch, table, begin, min(end, int(position) + 1))
        closed += work.rows[row_begin:row_end].tolist() if is_last else []
    assert seen == _wanted(batch)
    assert sorted(closed) == sorted(seen)
    assert work.num_pairs == sum(len(keys) for keys in seen.values())


@settings(max_examples=60, deadline=None)
@given(batch=batches())
def test_cpu_chains_are_independent(batch: tuple[Array, Array, Array, int]) -> None:
    work = cpu.plan_cpu_work(*batch, True)
    assert work.chain_starts[0] == 0
    assert work.chain_starts[-1] == len(work.items)
    owners: dict[int, int] = {}
    for chain, (begin, end) in enumerate(zip(work.chain_starts[:-1], work.chain_starts[1:], strict=True)):
        for item in work.items[begin:end]:
            for token in work.rows[item[cpu.ROW_BEGIN] : item[cpu.ROW_END]].tolist():
                assert owners.setdefault(token, chain) == chain


@settings(max_examples=40, deadline=None)
@given(
    batch=batches(),
    share=st.booleans(),
    deterministic=st.booleans(),
    heads=st.sampled_from([(4, 4), (6, 2), (8, 1), (71, 1)]),
    num_processors=st.sampled_from([1, 16, 264]),
)
def test_cuda_items_cover_every_key_of_every_packed_row_once(
    batch: tuple[Array, Array, Array, int],
    share: bool,
    deterministic: bool,
    heads: tuple[int, int],
    num_processors: int,
) -> None:
    num_heads, num_kv_heads = heads
    group = num_heads // num_kv_heads
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "num_processors": num_processors}
    costs = SharingCosts(0.0, 0.0)
    work = cuda_work(*batch, **sizes, share=share, deterministic=deterministic, costs=costs)
    rows, positions, slots = work.rows.tolist(), work.positions.tolist(), work.slots.tolist()
    blocks, merged = work.buffer.tolist(), set(work.merged_tokens[: work.num_merged].tolist())
    assert work.entry(MERGE_ENTRY)[0] == work.num_merged
    parts: dict[tuple[int, int], list[tuple[int, list[tuple[int, int]]]]] = {}
    used_slots: set[int] = set()
    covered = 0
    assert len({launch.block_rows for launch in work.launches}) == len(work.launches)
    for launch in work.launches:
        assert not deterministic or launch.block_rows == 64
        assert work.entry(launch.entry)[:2].tolist() == [covered, launch.num_items]
        items = work.items[covered : covered + launch.num_items].tolist()
        covered += launch.num_items
        lens = [item[cuda.KEY_END] - item[cuda.KEY_BEGIN] for item in items]
        assert lens == sorted(lens, reverse=True), "long items first"
        for table, kv_head, begin, end, row_begin, num_rows, is_direct, _ in items:
            assert begin % SPLIT_SIZE == 0
            assert num_rows <= launch.block_rows
            one_split = (end - 1) // SPLIT_SIZE == begin // SPLIT_SIZE
            assert one_split or (is_direct and (launch.folds or not folds_splits(launch.block_rows, 128)))
            for r in range(row_begin, row_begin + num_rows):
                token, head = rows[r // group], kv_head * group + r % group
                visible_end = min(end, positions[token] + 1)
                keys = [(blocks[table + n // batch[3]], n % batch[3]) for n in range(begin, visible_end)]
                parts.setdefault((token, head), []).append((begin, keys))
                assert bool(is_direct) == (token not in merged)
                if not is_direct:
                    slot = slots[token][0] + begin // SPLIT_SIZE * slots[token][1] + head
                    assert 0 <= slot < work.num_slots
                    assert slot not in used_slots
                    used_slots.add(slot)
    assert covered == len(work.items)
    wanted = _wanted(batch)
    assert set(parts) == {(token, head) for token in wanted for head in range(num_heads)}
    for (token, _), pieces in parts.items():
        assert [key for _, keys in sorted(pieces) for key in keys] == wanted[token]
        if token in merged:  # the merge kernel reads every split up to the row's own
            starts = {begin // SPLIT_SIZE for begin, _ in pieces}
            assert starts >= set(range(positions[token] // SPLIT_SIZE + 1))


def test_a_shared_prefix_is_read_once() -> None:
    tables = np.arange(64 * 40, dtype=np.int32).reshape(64, 40)
    tables[:, :32] = tables[0, :32]
    starts = np.arange(65, dtype=np.int32)
    lens = np.full(64, 600, np.int32)
    on_cpu = cpu.plan_cpu_work(starts, lens, tables, 16, True)
    keys = on_cpu.items[:, cpu.KEY_END] - on_cpu.items[:, cpu.KEY_BEGIN]
    assert keys.sum() == 512 + 64 * 88
    shared, flat = (cuda_work(starts, lens, tables, num_processors=264, share=share) for share in (True, False))

    def keys_read(work: CudaWork) -> int:
        return int((work.items[:, cuda.KEY_END] - work.items[:, cuda.KEY_BEGIN]).sum())

    assert keys_read(flat) == 2 * 64 * 600
    assert keys_read(shared) == 2 * (2 * 512 + 64 * 88)  # 256 packed rows are two tiles of 128


@pytest.mark.parametrize(
    ("costs", "is_shared"),
    [((0.0, 0.0), True), ((5.0, 0.0), True), ((6.0, 0.0), False), ((0.0, 1e5), True), ((0.0, 1e6), False)],
)
def test_sharing_must_save_more_keys_than_it_costs(costs: tuple[float, float], is_shared: bool) -> None:
    tables = np.arange(2 * 40, dtype=np.int32).reshape(2, 40)
    tables[1, :16] = tables[0, :16]
    # saves 256 keys of 512 bytes; adds partials of 2 x 8 rows and 3 splits
    work = cuda_work(range(3), [600, 600], tables, num_kv_heads=1, costs=SharingCosts(*costs))
    assert bool(work.num_merged) == is_shared


def test_little_sharing_is_not_worth_cutting_for() -> None:
    tables = np.arange(2 * 600, dtype=np.int32).reshape(2, 600)
    tables[1, :16] = tables[0, :16]
    assert cuda_work(range(3), [9000, 9000], tables).num_merged == 0


@pytest.mark.parametrize(
    ("starts", "lens", "num_heads", "message"),
    [
        ([0, 1], [1, 1], 4, "need 3 query_starts"),
        ([0, 2, 1], [2, 2], 4, "rise from 0"),
        ([0, 1, 4], [5, 2], 4, "rise from 0"),
        ([0, 1, 2], [5, 33], 4, "cannot hold 33 keys"),
        ([0, 1, 2], [1, 1], 5, "5 query heads cannot be shared among 2"),
    ],
    ids=["too few", "falling", "context shorter than its new tokens", "table too narrow", "heads"],
)
def test_contradictory_sizes_are_refused_with_the_numbers(
    starts: list[int], lens: list[int], num_heads: int, message: str
) -> None:
    tables, sizes = np.zeros((2, 2), np.int32), {"num_kv_heads": 2, "head_dim": 32, "block_size": 16}
    with pytest.raises(ValueError, match=message):
        plan_attention(np.array(starts, np.int32), np.array(lens, np.int32), tables, num_heads=num_heads, **sizes)


LONG = [
    pytest.param([1000], [131_072], 0, (32, 8, 128), id="a turn after a long prefix"),
    pytest.param([60], [131_072], 0, (128, 1, 576), id="latents"),
    pytest.param([8] * 256, [126_500] * 256, 126_000, (32, 8, 128), id="drafts that share a long prefix"),
]


@pytest.mark.parametrize(("q_lens", "context_lens", "shared", "heads"), LONG)
def test_partial_results_have_a_bound(
    q_lens: list[int], context_lens: list[int], shared: int, heads: tuple[int, int, int]
) -> None:
    num_heads, num_kv_heads, head_dim = heads
    width = -(-max(context_lens) // 64)
    tables = np.arange(len(q_lens) * width, dtype=np.int32).reshape(len(q_lens), width)
    tables[:, : shared // 64] = tables[0, : shared // 64]
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    work = cuda_work([0, *np.cumsum(q_lens)], context_lens, tables, 64, num_processors=264, **sizes)
    assert work.num_slots * (head_dim + 2) * 4 <= cuda.MAX_PARTIAL_BYTES


def test_few_tokens_behind_many_are_cut_and_many_walk() -> None:
    """A wide tile that walks costs less than partial results as large as its keys, if there are some tiles."""
    tables = np.arange(512, dtype=np.int32)[None]

    def num_slots(q_len: int) -> int:
        sizes = {"num_heads": 32, "num_kv_heads": 8, "num_processors": 264}
        return cuda_work([0, q_len], [32_768], tables, 64, share=False, **sizes).num_slots

    assert num_slots(1) > 0 and num_slots(16) > 0
    assert num_slots(500) == num_slots(2000) == 0
