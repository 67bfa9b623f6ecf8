"""Engines of several ranks against an engine of one: the same tokens, and within one number of ranks the same bits.

The processes of two and of four ranks are started once, and load one model after another. All of it is in this file, so
that one worker of a parallel run starts them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import phloem as ph
from phloem.runtime.cli.serve import parts_of
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute import adapters
from phloem.runtime.execute.loading import load
from phloem.runtime.models import Adapter
from phloem.runtime.parallel.message import Message
from phloem.runtime.parallel.rank_processes import RankProcesses
from phloem.runtime.parallel.ranks import Ranks
from phloem.runtime.parallel.started_process import CODE

from ..fakes import expect_short_answers
from ..models.decoder_cases import CASES
from ..models.oracle import random_ids, save_random_model
from ..models.saved_adapters import FILE, save_adapter
from .cut_cases import BY_FOUR, BY_TWO, EIGHT_HEADS

CPU = torch.device("cpu")
CLOSE = 1e-4  # of log-probabilities in float32, which ranks sum in another order


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[int, RankProcesses]]:
    found = {size: RankProcesses(size, CPU, 30.0, outlives_engine=True) for size in (2, 4)}
    yield found
    for one in found.values():
        one.close()


def engine_of(folder: Path | str, ranks: RankProcesses | None = None, **settings: Any) -> Engine:
    size = 1 if ranks is None else ranks.size
    common = {"device": "cpu", "num_blocks": 256, "check_invariants": True, "tensor_parallel_size": size}
    config = EngineConfig(str(folder), **{**common, **settings})
    return Engine.from_loaded(config, load(config, None, ranks))


def greedy(max_tokens: int, **more: Any) -> ph.SamplingParams:
    return ph.SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, logprobs=0, **more)


def said(completion: ph.Completion) -> list[tuple[int, float]]:
    return [(one.token_id, one.logprob) for one in completion.logprobs]


def assert_close(found: list[list[tuple[int, float]]], expected: list[list[tuple[int, float]]]) -> None:
    for mine, its in zip(found, expected, strict=True):
        assert [token for token, _ in mine] == [token for token, _ in its]
        assert max(abs(a - b) for (_, a), (_, b) in zip(mine, its, strict=True)) < CLOSE


def check(folder: Path, ranks: RankProcesses, most: int) -> None:
    """`most` greedy tokens of one prompt and fewer of others; and the same again, alone, drafted and from the cache."""
    first = random_ids(30)
    prompts = [first, random_ids(13, 1), first[:20]]
    params = [greedy(most), greedy(12), greedy(12)]
    with engine_of(folder) as alone:
        expected = [said(one) for one in alone.generate(prompts, params)]
    with engine_of(folder, ranks, block_size=4, max_batch_tokens=24) as engine:
        found = [said(one) for one in engine.generate(prompts, params)]
        assert_close(found, expected)
        again = engine.generate(first, params[0])
        assert said(again) == found[0]  # bit by bit
        assert again.usage.cached_tokens > 0 and again.usage.jumped_tokens > most // 2


@pytest.mark.parametrize("name", BY_TWO)
def test_two_ranks_say_what_one_says(name: str, processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES[name])
    check(tmp_path, processes[2], 64 if name == BY_TWO[0] else 20)


@pytest.mark.parametrize("name", BY_FOUR)
def test_four_ranks_say_what_one_says(name: str, processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    kind, options = CASES[name]
    save_random_model(tmp_path, kind, {**options, **BY_FOUR[name]})
    check(tmp_path, processes[4], 20)


def test_all_that_a_request_may_ask_for(processes: dict[int, RankProcesses]) -> None:
    """Constraints, forks, samples, scores, vectors, budgets and preemption, on the bundled model."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    results: list[list[Any]] = []
    for ranks in (None, processes[2]):
        settings = {"block_size": 4, "num_blocks": 44, "run_ahead": ranks is not None}
        with engine_of("nano", ranks, **settings) as engine:
            expect_short_answers(engine)
            crowd = [[index, *range(20)] for index in range(16)]
            found: list[Any] = [
                [
                    one.token_ids for one in engine.generate(crowd, greedy(40, stop="never said"))
                ],  # more than the pool holds at once
                engine.generate("A person:", greedy(40), ph.json_schema(schema)).text,
                [one.text for one in engine.generate("The town", ph.SamplingParams(n=3, seed=7, max_tokens=20))],
                engine.generate("The boat is green. " * 8, greedy(70, kv_budget=64)).token_ids,
                engine.generate("The boat is green. " * 8, greedy(70, kv_budget=64, kv_policy="sinks")).token_ids,
            ]
            assert engine.statistics().num_preemptions > 0
            scores = [one.logprob for row in engine.score("The town", [[5, 6, 7], [8]]) for one in row]
            numbers = torch.cat([torch.tensor(scores), torch.from_numpy(engine.embed("The boat")).flatten()])
            results.append([found, numbers])
    assert results[0][0] == results[1][0]
    assert float((results[0][1] - results[1][1]).abs().max()) < CLOSE


@pytest.mark.parametrize(("size", "places"), [(2, (0, 1, 5, 99)), (4, (3,))])
def test_a_fault_of_rank_0_costs_one_request(
    size: int,
    places: Sequence[int],
    processes: dict[int, RankProcesses],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """places: the operation with the other ranks before which it comes, of six; or it comes after all of them."""
    save_random_model(tmp_path, *CASES["llama-gqa"][:1], EIGHT_HEADS)
    with engine_of(tmp_path, processes[size], lookup_drafts=False) as engine:
        ranks, prompts = processes[size].ranks, [[5, 6], [7, 8, 9], [10]]
        whole = [one.token_ids for one in engine.generate(prompts, greedy(8))]
        for at in places:
            engine.flush_cache()
            with monkeypatch.context() as patch:
                patch.setattr(engine.core._runner, "_launch", broken(engine.core._runner, ranks, at))
                streams = [engine.submit(prompt, greedy(8)) for prompt in prompts]
                with pytest.raises(ph.RequestError, match="no such number"):
                    streams[1].result()
                assert [streams[index].result().token_ids for index in (0, 2)] == [whole[0], whole[2]]
            assert engine.generate(prompts[1], greedy(8)).token_ids == whole[1]


def broken(runner: Any, ranks: Ranks, at: int) -> Any:
    """A forward that fails before an operation, or after all, where the token 7 is in the batch."""
    launch = runner._launch

    def launched(batch: Any, *more: Any) -> Any:
        if 7 not in batch.token_ids:
            return launch(batch, *more)
        first, begin = ranks.num_operations, ranks._run

        def run(*given: Any) -> None:
            if ranks.num_operations == first + at:
                raise ValueError("no such number")
            begin(*given)

        try:
            ranks._run = run  # type: ignore[method-assign]
            launch(batch, *more)
        finally:
            del ranks._run
        raise ValueError("no such number")

    return launched


def test_a_draft_model_is_on_rank_0_alone(processes: dict[int, RankProcesses]) -> None:
    with engine_of("nano", processes[2], speculative_model="nano", lookup_drafts=False) as engine:
        drafted = engine.generate("The river", greedy(40))
        ranks, draft = parts_of(engine.core)
    others = processes[2].process_ids
    assert ranks == f"2 ranks compute it: processes {os.getpid()} (this one), {others[0]}"
    assert draft == "draft model nano: 67% of the memory for KV"  # two heads, and one of the model's two
    with engine_of("nano", lookup_drafts=False) as alone:
        assert drafted.token_ids == alone.generate("The river", greedy(40)).token_ids
    assert drafted.usage.jumped_tokens > 10


@pytest.mark.parametrize("name", ["nano", "granite-hybrid"])  # keys, and states beside them
def test_tiers_hold_the_parts_of_all_ranks(name: str, processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    model = name if name == "nano" else str(tmp_path / name)
    if name != "nano":
        save_random_model(tmp_path / name, *CASES[name])
    prompt = random_ids(60, 3)
    settings = {"disk_cache": str(tmp_path / "kv"), "block_size": 4, "role": "decode"}
    with engine_of(model, processes[2], **settings) as engine:
        first = engine.generate(prompt, greedy(8))
    with engine_of(model, processes[2], **settings) as engine:
        again = engine.generate(prompt, greedy(8))
        assert again.usage.cached_tokens >= 56
    assert said(again) == said(first)
    with engine_of(model, **settings) as alone:  # what two ranks have written is laid out otherwise
        assert alone.generate(prompt, greedy(8)).usage.cached_tokens == 0


@pytest.mark.parametrize("name", ["glm", "gpt-neox"])
def test_adapters_are_cut_as_the_maps_that_they_add_to(
    name: str, processes: dict[int, RankProcesses], tmp_path: Path
) -> None:
    model = save_random_model(tmp_path / "model", *CASES[name])
    folders = [
        save_adapter(tmp_path / str(seed), model, r".*\.layers\..*", {}, seed=seed, target_modules="all-linear")
        for seed in range(2)
    ]
    results = []
    for ranks in (None, processes[2]):
        with engine_of(tmp_path / "model", ranks, adapters={"one": str(folders[0])}) as engine:
            engine.adapters.load("two", folders[1])
            names = ["one", None, "two", "one"]
            results.append([said(engine.generate(random_ids(9), greedy(24), adapter=name)) for name in names])
    assert_close(results[1], results[0])
    assert results[1][0] == results[1][3]
    assert results[1][0] != results[1][1] != results[1][2]


def test_an_adapter_that_another_rank_finds_changed_is_refused_on_all(
    processes: dict[int, RankProcesses], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_random_model(tmp_path / "model", *CASES["llama-gqa"])
    folders = [
        save_adapter(tmp_path / str(seed), model, r"model\.layers\..*[qv]_proj", {}, seed=seed) for seed in range(2)
    ]
    read = adapters.read_adapter

    def changing(name: str, folder: Path, *more: Any) -> Adapter:
        adapter = read(name, folder, *more)
        shutil.copy(folders[1] / FILE, folder / FILE)
        return adapter

    with engine_of(tmp_path / "model", processes[2], adapters={"kept": str(folders[1])}) as engine:
        expected = engine.generate([1, 2], greedy(4), adapter="kept").token_ids
        running = engine.submit([5, 6], greedy(60))
        with monkeypatch.context() as patch:
            patch.setattr(adapters, "read_adapter", changing)
            with pytest.raises(
                ph.ConfigError, match=rf"rank 1: adapters: new: {folders[0]} has changed.*load it again"
            ):
                engine.adapters.load("new", folders[0])
        with pytest.raises(ph.RequestError, match="'new' is not loaded; there are: kept"):
            engine.generate([1, 2], greedy(4), adapter="new")
        assert running.result().finish_reason == "length"
        for name in (
            "new",
            "again",
        ):  # the same content as the other name's, which the ranks keep when one is let go of
            engine.adapters.load(name, folders[0])
            engine.adapters.unload(name)
        assert engine.generate([1, 2], greedy(4), adapter="kept").token_ids == expected


def test_each_rank_has_its_part_of_weights_and_keys(processes: dict[int, RankProcesses]) -> None:
    with engine_of("nano") as alone:
        all_weights = alone.core._runner._decoder.num_weight_bytes  # type: ignore[attr-defined]
        all_keys = alone.prefix_cache.supply._kv_cache.block_bytes
    with engine_of("nano", processes[2]) as engine:
        own = engine.core._runner._decoder.num_weight_bytes  # type: ignore[attr-defined]
        pool = engine.prefix_cache.supply._kv_cache
        assert pool.block_bytes == all_keys
        assert pool.row_bytes == all_keys // 2
    assert own < 0.52 * all_weights


def test_a_rank_that_refuses_the_model_is_named(processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    save_random_model(tmp_path, "LlamaForCausalLM", {})
    own = EngineConfig(str(tmp_path), device="cpu", tensor_parallel_size=2)
    processes[2].tell(Message("load", {"model": str(tmp_path / "gone"), "device": "cpu"}))
    with pytest.raises(ph.ModelError, match=r"rank 1: .*gone.*no such folder"):
        processes[2].replies()
    Engine.from_loaded(own, load(own, None, processes[2])).close()  # and it takes another


def test_ranks_serve_one_engine_at_a_time(processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    config = EngineConfig("nano", device="cpu", tensor_parallel_size=2, num_blocks=8)
    loaded = load(config, None, processes[2])
    with Engine.from_loaded(config, loaded), pytest.raises(ph.ConfigError, match="serve an engine already; load it"):
        Engine.from_loaded(config, loaded)


@pytest.mark.parametrize(
    ("options", "size", "reason"),
    [
        ({}, 4, r"4 does not divide the model's attention heads \(6\)"),
        ({"num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 78}, 4, "intermediate size"),
        ({"num_attention_heads": 12, "hidden_size": 96, "num_key_value_heads": 3}, 4, "neither divides"),
    ],
)
def test_models_that_cannot_be_cut_so_are_refused(
    options: dict[str, Any], size: int, reason: str, tmp_path: Path
) -> None:
    save_random_model(tmp_path, "LlamaForCausalLM", options)
    with pytest.raises(ph.ConfigError, match=f"tensor_parallel_size: .*{reason}.*; choose another number, or take 1"):
        ph.Engine(str(tmp_path), device="cpu", tensor_parallel_size=size)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tensor_parallel_size": 0}, "expected a positive integer"),
        ({"tensor_parallel_size": 2.0}, "expected a positive integer"),
        ({"tensor_parallel_size": 5000}, "at most 1024"),
        ({"rank_timeout_seconds": 0.0}, "must be above 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ph.ConfigError, match=f"{next(iter(settings))}: .*{reason}"):
        EngineConfig("nano", **settings)


STUB = """import json, socket, sys
told = json.loads(sys.argv[1])
channel = socket.socket(fileno=told["channel"])
{}"""
HELLO = """said = json.dumps(["hello", {"versions": ["0.0.1", "2.0"]}, []]).encode()
channel.sendall(len(said).to_bytes(4, "little") + bytes(8) + said)
channel.recv(1)"""

FAULT = """said = json.dumps(["fault", {"text": "out of memory"}, []]).encode()
channel.sendall(len(said).to_bytes(4, "little") + bytes(8) + said)
sys.exit(1)"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (STUB.format("sys.exit(7)"), r"rank 1 \(process \d+\) has ended with exit status 7"),
        (STUB.format(HELLO), r"rank 1 \(process \d+\) runs other versions .*'0\.0\.1'.*start again"),
        (STUB.format(FAULT), r"rank 1 \(process \d+\): out of memory"),
    ],
    ids=["a rank that ends at once", "another version", "a fault"],
)
def test_ranks_that_cannot_begin_are_named(code: str, reason: str) -> None:
    with pytest.raises(ph.ConfigError, match=reason):
        RankProcesses(2, CPU, 5.0, code=code)


def test_a_rank_that_hangs_ends_the_engine_and_leaves_nothing() -> None:
    with ph.Engine("nano", device="cpu", tensor_parallel_size=2, rank_timeout_seconds=6.0) as engine:
        assert engine.core.processes is not None
        (process_id,) = engine.core.processes.process_ids
        stream = engine.submit("Tarvin", ph.SamplingParams(max_tokens=4000, ignore_eos=True))
        next(iter(stream))
        os.kill(process_id, signal.SIGSTOP)
        with pytest.raises(ph.EngineStopped, match=rf"rank 1 \(process {process_id}\) does not answer .* 6 seconds"):
            for _ in stream:
                pass
        with pytest.raises(ph.EngineStopped, match="does not answer"):
            engine.generate("Tarvin")
    assert not is_running(process_id)


def test_a_rank_that_is_killed_ends_an_engine_that_waits(processes: dict[int, RankProcesses], tmp_path: Path) -> None:
    """The last but one, since the four are gone afterwards."""
    ranks = processes.pop(4)
    save_random_model(tmp_path, "LlamaForCausalLM", EIGHT_HEADS)
    with engine_of(tmp_path, ranks) as engine:
        assert engine.generate([1, 2], greedy(2)).token_ids
        victim = ranks.process_ids[1]
        os.kill(victim, signal.SIGKILL)
        engine.step_thread._thread.join(20)  # type: ignore[union-attr]
        assert not engine.step_thread.is_alive
        with pytest.raises(ph.EngineStopped, match=rf"rank 2 \(process {victim}\) was ended by SIGKILL"):
            engine.generate([1, 2])
    ranks.close()
    assert not any(map(is_running, ranks.process_ids))


def test_ranks_end_when_rank_0_is_gone_without_a_word(processes: dict[int, RankProcesses]) -> None:
    """What the system does when it is killed: its ends of the connections are closed."""
    ranks = processes.pop(2)
    (process,) = ranks._processes
    ranks._is_closing = True
    process.lifeline.shutdown(socket.SHUT_RDWR)
    with suppress(subprocess.TimeoutExpired):
        process.process.wait(20)
    assert process.process.returncode == 3
    ranks.close()


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_rank_runs_nothing_of_the_callers_program() -> None:
    assert "__main__" not in CODE
