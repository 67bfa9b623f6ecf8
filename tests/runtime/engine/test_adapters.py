"""Many adapters over one model: each request says what it would say alone, and nothing that is kept crosses over."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError, ModelError, RequestError
from phloem.kernels import AttentionPlan, LoraLayers
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import regex
from phloem.runtime.engine.collector import Collector
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.adapters import Adapters
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import AdaptedRows, Adapter, resolve_model
from phloem.runtime.request import Completion, SamplingParams

from ..fakes import EOS, FakeDecoder, fake_engine, greedy_truth, logits_after
from ..models.oracle import Oracle
from ..models.saved_adapters import ALL, merged, save_adapter
from ..stepped import SteppedEngine
from ..traffic import Said, listen, step

EVERY = r".*_proj"
GREEDY = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
TEXTS = ["Hello, who is there?", "12 jackets and a hat", "Item 7 costs 30 gold. Item 8 costs 12 gold. " * 4]


class Saved:
    """The bundled model in transformers, and three adapters for it on disk."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from transformers import LlamaForCausalLM
        self.model: Any = LlamaForCausalLM.from_pretrained(resolve_model("nano"), dtype=torch.float32).eval()
        self.folders = {
            "all": save_adapter(folder / "all", self.model, EVERY, {}, seed=1, size=0.1, target_modules=ALL),
            "wide": save_adapter(
                folder / "wide", self.model, r".*(q|v)_proj", {}, seed=2, size=0.05, r=20, lora_alpha=40
            ),
            "low": save_adapter(
                folder / "low", self.model, r".*down_proj", {}, seed=3, size=0.3, r=1, target_modules=["down_proj"]
            ),
        }

    def assert_greedy(self, prompt: list[int], answer: list[int], name: str | None) -> None:
        model = self.model if name is None else merged(self.model, self.folders[name])
        Oracle(self.folders.get(name or "", Path()), model).assert_greedy(prompt, answer)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def loaded(saved: Saved) -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    adapters = {name: str(folder) for name, folder in saved.folders.items()}
    yield load(EngineConfig(device="cpu", adapters=adapters))
    torch.set_num_threads(threads)


def engine(loaded: LoadedModel, **options: Any) -> SteppedEngine:
    config = EngineConfig(device="cpu", check_invariants=True, **options)
    return SteppedEngine.from_loaded(config, loaded, stopwatch=lambda: 0.0)


Asked = tuple[str, SamplingParams, str | None]


def answers(served: SteppedEngine, asked: list[Asked]) -> list[Completion]:
    """All at once, each through the adapter that it names."""
    collectors = {served.add(text, params, adapter=name): Collector(1, None) for text, params, name in asked}
    while served.has_work:
        for delta in served.step():
            collectors[delta.request_id].push(delta)
    return [completion for collector in collectors.values() for completion in collector.completions()]


def numbers(completion: Completion) -> tuple[Any, ...]:
    return completion.token_ids, [one.logprob for one in completion.logprobs]


def test_each_says_what_transformers_says_with_the_adapter_merged_in(loaded: LoadedModel, saved: Saved) -> None:
    asked: list[Asked] = [(text, GREEDY, name) for text in TEXTS for name in (None, *saved.folders)]
    for (text, _, name), found in zip(asked, answers(engine(loaded), asked), strict=True):
        saved.assert_greedy(loaded.tokenizer.encode_prompt(text), list(found.token_ids), name)
    said = {completion.token_ids for completion in answers(engine(loaded), asked[:4])}
    assert len(said) == 4, "every adapter says something else"


def test_keys_are_kept_by_what_the_adapter_looks_at(loaded: LoadedModel, saved: Saved, tmp_path: Path) -> None:
    """A request with a `kv_budget` says what it says over the merged model: its choice goes through the adapter too."""
    merged(saved.model, saved.folders["all"]).save_pretrained(tmp_path)
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resolve_model("nano") / name, tmp_path)
    params = SamplingParams(max_tokens=150, temperature=0.0, ignore_eos=True, logprobs=0, kv_budget=64)
    text = " ".join(f"Item {number} costs {number * 37 % 91} gold." for number in range(40))
    (found,) = answers(engine(loaded), [(text, params, "all")])
    with Engine(str(tmp_path), device="cpu") as other:
        expected = other.generate(text, params)
        assert found.token_ids == expected.token_ids
        assert found.token_ids != other.generate(text, replace(params, kv_budget=None)).token_ids
    assert [one.logprob for one in found.logprobs] == pytest.approx(
        [one.logprob for one in expected.logprobs], abs=1e-3
    )


NAMES = st.sampled_from([None, "all", "wide", "low"])
MOST = st.sampled_from([16, 2048])
ALL_PARAMS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.8]),
    seed=st.integers(0, 9),
    logprobs=st.just(0),
    ignore_eos=st.just(True),
)


@pytest.fixture(scope="module")
def lonely(loaded: LoadedModel) -> SteppedEngine:
    """Computes everything anew, for one at a time."""
    return engine(loaded, prefix_cache=False, lookup_drafts=False)


@pytest.fixture(scope="module")
def crowds(loaded: LoadedModel) -> dict[int, SteppedEngine]:
    """By the most tokens of a step; what they remember, they remember for all tests."""
    return {most: engine(loaded, max_batch_tokens=most) for most in (16, 2048)}


@settings(max_examples=12, deadline=None)
@given(asked=st.lists(st.tuples(st.sampled_from(TEXTS), ALL_PARAMS, NAMES), min_size=2, max_size=9), most=MOST)
def test_a_mixture_says_the_bits_that_each_says_alone(
    lonely: SteppedEngine, crowds: dict[int, SteppedEngine], asked: list[Asked], most: int
) -> None:
    alone = [lonely.generate(text, params, adapter=name) for text, params, name in asked]
    assert [numbers(one) for one in answers(crowds[most], asked)] == [numbers(one) for one in alone]


def test_an_adapter_over_int8_weights_is_the_same_in_every_company(loaded: LoadedModel, saved: Saved) -> None:
    rounded = load(EngineConfig(device="cpu", quantise="int8", adapters={"all": str(saved.folders["all"])}))
    params = SamplingParams(max_tokens=12, temperature=0.0, logprobs=0, ignore_eos=True)
    asked: list[Asked] = [(text, params, name) for text in TEXTS for name in (None, "all")]
    alone = [engine(rounded, prefix_cache=False).generate(text, params, adapter=name) for text, params, name in asked]
    assert [numbers(one) for one in answers(engine(rounded), asked)] == [numbers(one) for one in alone]
    assert alone[0].token_ids != alone[1].token_ids


class AdaptedFakeDecoder(FakeDecoder):
    """Writes into the KV not only its token but also through which adapter it went, and answers from all of that."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters = {
            name: Adapter(name, Path(), digit * 64, LoraLayers([[None] * 4], torch.device("cpu")))
            for name, digit in (("a", "a"), ("b", "b"), ("a's twin", "a"))
        }
        self._numbers = {id(one.layers): NUMBERS[name] for name, one in self.adapters.items()}

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
        adapted: object = None,
    ) -> torch.Tensor:
        if adapted is not None:
            assert isinstance(adapted, AdaptedRows) and adapted.every is not None
            token_ids = token_ids.clone()
            for segment in adapted.every.segments:
                token_ids[segment.begin : segment.end] += self._numbers[id(segment.layers)]
        return super().forward(token_ids, positions, kv_cache, plan, slots, logits_rows)


NUMBERS = {None: 0, "a": 1000, "b": 2000, "a's twin": 1000}


def truth(prompt: list[int], name: str | None, max_tokens: int) -> tuple[int, ...]:
    """What the fake model says through an adapter, without any engine."""
    context, said = [token + NUMBERS[name] for token in prompt], []
    while len(said) < max_tokens and EOS not in said:
        said.append(int(logits_after(context).astype("float32").argmax()))
        context.append(said[-1] + NUMBERS[name])
    return tuple(said)


def adapted_engine(**options: Any) -> tuple[Engine, AdaptedFakeDecoder]:
    decoder = AdaptedFakeDecoder()
    served = fake_engine(decoder=decoder, **options)
    served.adapters = served.request_factory._adapters = Adapters(
        served.model_config, torch.device("cpu"), torch.float64, decoder.adapters
    )
    return served, decoder


@pytest.mark.parametrize("options", [{}, {"num_blocks": 24}, {"max_batch_tokens": 7}, {"run_ahead": True}], ids=str)
def test_random_traffic_in_tiny_pools(options: dict[str, Any]) -> None:
    assert truth([1, 2, 3], None, 9) == tuple(greedy_truth([1, 2, 3], 9))
    source = random.Random(str(options))
    served, _ = adapted_engine(**options)
    wanted: dict[str, tuple[int, ...]] = {}
    said: dict[str, Said] = {}
    stems = [[source.randrange(256) for _ in range(20)] for _ in range(3)]
    while len(wanted) < 150 or served.has_work:
        if len(wanted) < 150 and source.random() < 0.6:
            prompt = source.choice(stems)[: source.randrange(1, 21)] + [source.randrange(4) for _ in range(3)]
            name, length = source.choice([*NUMBERS]), source.randrange(1, 14)
            params = SamplingParams(max_tokens=length, temperature=0.0)
            request_id = served.add(prompt, params, adapter=name, namespace=source.choice(["", "", "x"]))
            wanted[request_id], said[request_id] = truth(prompt, name, length), Said()
        step(served, said)
        if source.random() < 0.02 and said:
            request_id = source.choice([*said])
            if served.abort(request_id):
                del wanted[request_id], said[request_id]
                wanted[f"aborted {len(wanted)} {request_id}"] = ()
    for request_id, one in said.items():
        assert tuple(one.token_ids) == wanted[request_id]
    assert served.statistics().cached_tokens > 0
    assert served.statistics().num_held_blocks == 0


def test_prefixes_are_shared_within_an_adapters_content_and_nowhere_else() -> None:
    served, _ = adapted_engine()
    prompt = list(range(40))

    def cached(adapter: str | None, namespace: str = "") -> int:
        return served.generate(prompt, GREEDY, adapter=adapter, namespace=namespace).usage.cached_tokens

    assert [cached(None), cached("a"), cached("b"), cached("a", "tenant")] == [0, 0, 0, 0]
    assert cached("a's twin") == cached("a") == cached(None) == 39
    digits = "a" * 64
    assert cached(None, f"\0{digits}") == 0, "no namespace reaches an adapter's prefixes"
    assert cached(None, digits) == 0


def test_a_name_with_other_content_is_another_adapter(loaded: LoadedModel, saved: Saved, tmp_path: Path) -> None:
    served = engine(loaded)
    folders = [
        save_adapter(tmp_path / str(i), saved.model, EVERY, {}, seed=9 + i, size=0.1, target_modules=ALL)
        for i in (0, 1)
    ]
    said, cached = [], []
    for folder in (folders[0], folders[1], folders[0]):
        served.adapters.load("new", folder)
        with pytest.raises(ConfigError, match="'new' is loaded already; unload it first"):
            served.adapters.load("new", folder)
        completion = served.generate(TEXTS[2], GREEDY, adapter="new")
        said.append(completion.token_ids)
        cached.append(completion.usage.cached_tokens)
        served.adapters.unload("new")
    assert said[0] == said[2] != said[1]
    assert cached[:2] == [0, 0] and cached[2] > 0


def test_habits_replies_scores_and_pins_are_an_adapters_own(loaded: LoadedModel, lonely: SteppedEngine) -> None:
    served = engine(loaded)
    chat = [{"role": "user", "content": "Hello!"}]
    reply = served.chat(chat, SamplingParams(max_tokens=6, temperature=1.5, seed=1), adapter="all")
    more = [*chat, {"role": "assistant", "content": reply.text}, {"role": "user", "content": "And now?"}]
    spliced = {name: served.encode_chat(more, adapter=name).num_spliced_tokens for name in (None, "all", "wide")}
    if reply.text:
        assert spliced["all"] > 0
    assert spliced[None] == spliced["wide"] == 0

    ids = loaded.tokenizer.encode_prompt(TEXTS[2])
    continuation = loaded.tokenizer.encode(" and more")
    scores = {name: served.score(ids, [continuation], adapter=name) for name in (None, "all", "all", "wide")}
    assert len({str(found) for found in scores.values()}) == 3
    assert scores["all"] == lonely.score(ids, [continuation], adapter="all")

    pin = served.pin(ids[1:], adapter="all")
    assert pin.num_tokens > 0
    assert served.generate(ids[1:], GREEDY, adapter="all").usage.cached_tokens >= pin.num_tokens
    assert served.generate(ids[1:], GREEDY).usage.cached_tokens == 0

    params = SamplingParams(max_tokens=40, temperature=0.0)
    pattern = regex("(left|right|straight on|never){1,5}")
    plain = {name: lonely.generate("Which way?", params, pattern, adapter=name).token_ids for name in (None, "all")}
    for name in (None, "all", None, "all"):
        assert served.generate("Which way?", params, pattern, adapter=name).token_ids == plain[name]


def test_tiers_keep_adapters_apart(loaded: LoadedModel, saved: Saved, tmp_path: Path) -> None:
    def loaded_tokens(name: str | None, adapters: dict[str, Path]) -> int:
        folders = {key: str(folder) for key, folder in adapters.items()}
        with Engine(device="cpu", disk_cache=str(tmp_path / "disk"), adapters=folders) as served:
            return served.generate(TEXTS[2], GREEDY, adapter=name).usage.loaded_tokens

    one, other = {"it": saved.folders["all"]}, {"it": saved.folders["wide"]}
    assert loaded_tokens("it", one) == 0
    assert loaded_tokens("it", other) == 0
    assert loaded_tokens(None, one) == 0
    assert loaded_tokens("it", one) > 0
    assert loaded_tokens("it", other) > 0


def test_what_runs_when_an_adapter_is_unloaded_goes_on_and_so_do_its_forks(loaded: LoadedModel) -> None:
    adapters = Adapters(loaded.decoder.config, loaded.device, loaded.dtype, loaded.adapters)
    served = engine(loaded)
    assert served.adapters.names == adapters.names == ("all", "wide", "low")
    expected = served.generate(TEXTS[0], GREEDY, adapter="all").token_ids
    request_id = served.add(TEXTS[0], GREEDY, adapter="all")
    said: dict[str, Said] = {}
    step(served, said)
    served.adapters.unload("all")
    (child,) = served.fork(request_id)
    listen(served, said)
    assert tuple(said[request_id].token_ids) == tuple(said[child].token_ids) == expected
    for ask in (served.generate, served.pin):
        with pytest.raises(RequestError, match="adapter: 'all' is not loaded; there are: wide, low") as refused:
            ask(TEXTS[0], adapter="all")
        assert refused.value.param == "adapter"
    with pytest.raises(ConfigError, match="'all' is not loaded"):
        served.adapters.unload("all")
    with pytest.raises(RequestError, match="adapter: expected the name of a loaded adapter, got list"):
        served.generate(TEXTS[0], GREEDY, adapter=["low"])  # type: ignore[typeddict-item]
    assert served.generate(TEXTS[0], GREEDY, adapter="low").token_ids


def test_what_cannot_be_loaded_is_refused_before_anything_is_allocated(saved: Saved, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"adapter_config\.json: there is no such file"):
        Engine(device="cpu", adapters={"sql": str(tmp_path)})
    with pytest.raises(ConfigError, match="'' is no name for an adapter"):
        Engine(device="cpu", adapters={"": str(saved.folders["all"])})
    with Engine(device="cpu") as served, pytest.raises(ModelError, match="there is no such file"):
        served.adapters.load("sql", tmp_path)


def test_memory_that_is_not_there_is_an_error_with_a_remedy(
    loaded: LoadedModel, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Adapter:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("phloem.runtime.execute.adapters.read_adapter", fail)
    served = engine(loaded)
    with pytest.raises(ConfigError, match="adapters: more: no memory is left on cpu; unload another one"):
        served.adapters.load("more", saved.folders["all"])
    assert "more" not in served.adapters.names
