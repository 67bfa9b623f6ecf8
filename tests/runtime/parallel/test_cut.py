"""Parts of all ranks together are the whole, once; and what is said between them comes as it was sent."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import phloem as ph
from phloem.kernels import Grouped, ops, pack_grouped
from phloem.runtime.device import find_device
from phloem.runtime.models import ModelConfig
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.cut import Cut
from phloem.runtime.models.kv_shape import KVShape
from phloem.runtime.models.part import Part, joined, taken
from phloem.runtime.models.partial_linear import partial_linear, with_room
from phloem.runtime.models.sparse_gate import sparsen
from phloem.runtime.parallel.message import Channel, Message
from phloem.runtime.parallel.process_group import check_backend, join
from phloem.runtime.parallel.ranks import ALONE, Ranks

from ..models.decoder_cases import CASES
from .cut_cases import BY_FOUR, BY_TWO, SHARED, cut_kinds, kinds

VALUES: dict[str, Any] = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "num_experts": 7,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}


def model_of(folder: Path, **changes: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps({**VALUES, **changes}))
    return ModelConfig.from_folder(folder)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_parts_of_all_ranks_are_the_whole_once(size: int, tmp_path: Path) -> None:
    if size == 8:
        with pytest.raises(ph.ConfigError, match="7 experts; choose another number, or take 1"):
            Cut(model_of(tmp_path), Ranks(0, 8))
        return
    cuts = [Cut(model_of(tmp_path), Ranks(rank, size)) for rank in range(size)]
    for name in ("vocab", "heads", "inner", "shared", "experts"):
        parts = [cut.inner(0) if name == "inner" else getattr(cut, name) for cut in cuts]
        whole = torch.arange(parts[0].size)
        assert torch.equal(torch.cat([part.of(whole, 0) for part in parts]), whole)
    for cut in cuts:
        q, k, v = cut.qkv(0)
        assert (q.count, k.count, v.count) == (64 // size, 8 * max(1, 2 // size), 8 * max(1, 2 // size))
        assert sum(cut.config.qkv_rows(0)) == q.count + k.count + v.count
        assert cut.kv_heads(0).first == cut.heads.first * 2 // 8  # the heads that its queries meet


def test_every_kind_of_layer_is_run_over_ranks() -> None:
    """What the rows that are run leave out is named with a row that has it."""
    run = {kind for name in (*BY_TWO, *BY_FOUR) for kind in cut_kinds(ARCHITECTURES[CASES[name][0]])}
    left_out = {
        kind: name for name, (architecture, _) in CASES.items() for kind in cut_kinds(ARCHITECTURES[architecture]) - run
    }
    assert not left_out, "add a row to BY_TWO or BY_FOUR; or to SHARED, if each rank has all of it"
    known = {name for options in ARCHITECTURES.values() for name, _ in kinds(options)}
    assert known.issuperset(name for names in SHARED.values() for name in names)


@given(st.data())
def test_what_is_taken_of_a_tensor_is_what_its_parts_name(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    parts = []
    for size in sizes:
        begin = data.draw(st.integers(0, size - 1))
        parts.append(Part(size, ((begin, data.draw(st.integers(begin + 1, size))),)))
    part, tensor = joined(parts), torch.arange(sum(sizes) * 3).view(-1, 3)
    sections = torch.split(tensor, sizes)
    expected = torch.cat([rows[one.first : one.first + one.count] for rows, one in zip(sections, parts, strict=True)])
    assert torch.equal(taken(tensor, [part, 3]), expected)
    assert (part.size, part.count) == (sum(sizes), len(expected))


@given(st.integers(1, 4), st.sampled_from([4, 8]), st.data())
def test_columns_of_few_bits_are_those_of_the_wide_numbers(num_groups: int, size: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(num_groups)
    numbers = torch.randint(-8, 8, (3, num_groups * size), generator=generator, dtype=torch.int8)
    weight = Grouped("int4", numbers, torch.rand(3, num_groups, generator=generator))
    begin = data.draw(st.integers(0, num_groups * size - 1))
    end = data.draw(st.integers(begin + 1, num_groups * size))
    found = weight.columns(begin, end)
    assert torch.equal(found.widen(torch.float32), weight.widen(torch.float32)[:, begin:end])


JSON = st.dictionaries(st.text(max_size=5), st.none() | st.integers(-9, 9) | st.text(max_size=5), max_size=3)
ARRAYS = arrays.arrays(st.sampled_from([np.int64, np.int32, np.uint8]), arrays.array_shapes(min_side=0, max_side=4))


@given(st.lists(st.tuples(JSON, st.dictionaries(st.text(max_size=5), ARRAYS, max_size=3)), min_size=1, max_size=3))
def test_messages_come_as_they_were_sent(sent: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    mine, its = socket.socketpair()
    with mine, its:
        for values, found in sent:
            Channel(mine).send(Message("step", values, found).packed())
        channel = Channel(its)
        for values, found in sent:
            message = channel.receive(5.0)
            assert (message.kind, message.values, list(message.arrays)) == ("step", values, list(found))
            for name, array in found.items():
                assert message.arrays[name].dtype == array.dtype
                assert np.array_equal(message.arrays[name], array)
        mine.close()
        with pytest.raises(EOFError):
            channel.receive(5.0)


def test_sums_of_ranks_do_not_depend_on_other_rows(tmp_path: Path) -> None:
    """Rows alone and together: an all-reduce would fail this."""

    def run(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randn(8, 96, generator=torch.Generator().manual_seed(ranks.rank))
        assert torch.equal(ranks.share(rows.clone()), torch.randn(8, 96, generator=torch.Generator().manual_seed(0)))
        assert float(ranks.hand_out(torch.arange(3.0)[:, None])) == ranks.rank
        assert [len(part) for part in ranks.collect(rows)] == ([8] * 3 if ranks.rank == 0 else [])
        return ranks.sum(rows.clone()), torch.cat([ranks.sum(row[None]) for row in rows])

    found = on_ranks(3, tmp_path, run)
    for together, alone in found:
        assert torch.equal(together, alone)
        assert torch.equal(together, found[0][0])


@pytest.mark.parametrize("size", [2, 4])
def test_rows_are_rounded_by_the_step_of_the_whole_row(size: int, tmp_path: Path) -> None:
    """Whole numbers of steps on all ranks are those of one rank, so the results differ by the order of a sum alone."""
    generator = torch.Generator().manual_seed(size)
    numbers = torch.randint(-127, 128, (24, 64), generator=generator, dtype=torch.int8)
    weight = Grouped("int8", numbers, torch.rand(24, 1, generator=generator), input_step=0.0)
    x = torch.randn(9, 64, generator=generator) * torch.logspace(-3, 3, 64)
    x[3] = 0.0
    x[4, 1] = torch.nan

    def run(ranks: Ranks) -> torch.Tensor:
        own = Part(64, ((64 // size * ranks.rank, 64 // size * (ranks.rank + 1)),))
        part = pack_grouped(with_room(weight.columns(*own.ranges[0]), ranks))
        return ranks.sum(partial_linear(own.of(x, 1), part, ranks))

    expected = ops.linear(x, pack_grouped(weight))
    for found in on_ranks(size, tmp_path, run):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5, equal_nan=True)


def on_ranks(size: int, folder: Path, run: Callable[[Ranks], Any]) -> list[Any]:
    """What each of several ranks, which are threads, makes."""
    found: dict[int, Any] = {}

    def work(rank: int) -> None:
        path = str(folder / "meeting")
        found[rank] = run(Ranks(rank, size, join(path, rank, size, torch.device("cpu"), 20.0)))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert find_device("cuda:1", 2) == torch.device("cuda", 1)
    with pytest.raises(ph.ConfigError, match=r"tensor_parallel_size: 3 ranks need as many GPUs from cuda:1 on.*take 2"):
        find_device("cuda:1", 3)


GEMMA4: dict[str, Any] = {
    "architectures": ["Gemma4ForCausalLM"],
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "num_global_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "attention_k_eq_v": True,
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 1,
    "hidden_size_per_layer_input": 8,
    "enable_moe_block": False,
}


def test_keys_are_cut_layer_by_layer_and_inputs_by_whole_layers(tmp_path: Path) -> None:
    """Of four ranks each has one of four KV heads, and one of two, which two ranks have."""
    whole = model_of(tmp_path, **GEMMA4)
    cuts = [Cut(whole, Ranks(rank, 4)) for rank in range(4)]
    assert [cut.kv_heads(0).ranges for cut in cuts] == [((rank, rank + 1),) for rank in range(4)]
    assert [cut.kv_heads(1).ranges for cut in cuts] == [((rank // 2, rank // 2 + 1),) for rank in range(4)]
    for cut in cuts:
        for index in range(5):
            assert cut.config.qkv_rows(index) == tuple(part.count for part in cut.qkv(index))
        assert cut.config.kv_shapes() == (KVShape(1, 16), KVShape(1, 32), KVShape(1, 16), KVShape(1, 16))
    inputs = [cut.layer_inputs for cut in cuts]
    assert [part.count for part in inputs] == [8, 8, 8, 16]
    assert torch.equal(torch.cat([part.of(torch.arange(40), 0) for part in inputs]), torch.arange(40))
    assert [cut.config.layer_inputs.num_layers for cut in cuts if cut.config.layer_inputs] == [1, 1, 1, 2]
    with pytest.raises(ph.ConfigError, match=r"KV heads \(2\).*; choose another number, or take 1"):
        Cut(model_of(tmp_path, **{**GEMMA4, "num_attention_heads": 6, "num_key_value_heads": 3}), Ranks(0, 3))
    with pytest.raises(
        ph.ConfigError, match=r"8 is more than the model's 5 layers.*; choose another number, or take 1"
    ):
        Cut(whole, Ranks(0, 8))


def test_gates_are_cut_by_mean_and_deviation_of_all_ranks(tmp_path: Path) -> None:
    rows = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)) + torch.arange(5.0)[:, None]
    rows[4] = 3.0  # which do not deviate
    expected = rows.clone()
    sparsen(expected, 0.8, ALONE)
    gate, up = rows.chunk(2, 1)

    def run(ranks: Ranks) -> torch.Tensor:
        own = torch.cat([half.chunk(ranks.size, 1)[ranks.rank] for half in (gate, up)], 1)
        alone = own[:1].clone()
        sparsen(own, 0.8, ranks)
        sparsen(alone, 0.8, ranks)
        assert torch.equal(alone, own[:1])
        return own.chunk(2, 1)[0]

    torch.testing.assert_close(torch.cat(on_ranks(4, tmp_path, run), 1), expected[:, :64], rtol=1e-5, atol=1e-5)


def test_a_torch_without_a_way_between_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_gloo_available", lambda: False)
    with pytest.raises(ph.ConfigError, match=r"tensor_parallel_size: torch .* without gloo.*install a build"):
        check_backend(torch.device("cpu"))
