"""Vectors against transformers' hidden states on random checkpoints: pooled, in batches and chunks, hit or missed."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from phloem.errors import ModelError, RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import load
from phloem.runtime.models.vector_rules import VectorRules
from phloem.runtime.readout import POOLINGS, Pooling, Readout
from phloem.runtime.request import SamplingParams
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from ..models.decoder_cases import CASES
from ..models.gguf_files import finish
from ..models.oracle import random_ids, save_random_model

Rows = npt.NDArray[np.float32]
SHAPES = ("qwen3", "qwen3-base-untied", "llama-gqa", "gemma3", "minicpm3", "lfm2")
OPTIONS: dict[str, Any] = {"device": "cpu", "num_blocks": 512, "block_size": 4, "check_invariants": True, "jump": "off"}
READ = SamplingParams(max_tokens=0)
POOLING_KEYS = {"last": "pooling_mode_lasttoken", "mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def write_sentence_files(folder: Path, pooling: str, *, normalises: bool = True) -> None:
    """As sentence-transformers writes them."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")][: 2 + normalises]
    parts = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {key: name == pooling for name, key in POOLING_KEYS.items()}
    config = {"word_embedding_dimension": 48, **modes, "pooling_mode_max_tokens": False, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


class Shape:
    """A random checkpoint, and transformers' own model of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        if name == "qwen3-base-untied":  # as Qwen3-Embedding-8B is saved: no names above its own, no projection
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole = save_random_model(folder / "whole", *CASES["qwen3"])
            self.base = whole.model
            self.base.save_pretrained(folder)
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}))
        else:
            self.base = save_random_model(folder, *CASES[name]).model

    def hidden(self, token_ids: list[int]) -> Rows:
        with torch.inference_mode():
            return self.base(torch.tensor([token_ids])).last_hidden_state[0].numpy()


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shape]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Shape(request.param, tmp_path_factory.mktemp(request.param))
    torch.set_num_threads(threads)


def pooled(hidden: Rows, pooling: str, dimensions: int | None = None) -> Rows:
    """The definition."""
    vector = {"last": hidden[-1], "mean": hidden.astype(np.float64).mean(0), "cls": hidden[0]}[pooling][:dimensions]
    return vector / np.linalg.norm(vector)


def many_prompts() -> list[list[int]]:
    """Of all lengths; some begin alike."""
    shared = random_ids(30, 1)
    return [random_ids(n, n) for n in (1, 2, 5, 33, 70)] + [shared[:n] + random_ids(5, n) for n in (8, 17, 30)]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_those_of_transformers_in_batches_and_chunks(shape: Shape, pooling: Pooling) -> None:
    write_sentence_files(shape.folder, pooling)
    prompts = many_prompts()
    expected = [pooled(shape.hidden(prompt), pooling) for prompt in prompts]
    loaded = load(EngineConfig(model=str(shape.folder), device="cpu"))
    alone: list[Rows] = []
    for max_batch_tokens in (2048, 16):
        config = EngineConfig(model=str(shape.folder), max_batch_tokens=max_batch_tokens, **OPTIONS)
        with Engine.from_loaded(config, loaded) as engine:
            found = engine.embed(prompts)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
            again = [engine.embed(prompt) for prompt in prompts]
            assert [one.tobytes() for one in again] == [one[None].tobytes() for one in found], "a hit changes bits"
            cut = engine.embed(prompts, dimensions=7)
            short = [pooled(shape.hidden(prompt), pooling, 7) for prompt in prompts]
            np.testing.assert_allclose(cut, short, rtol=0, atol=1e-5)
            cached = engine.generate(prompts[4], READ, pooling=pooling).usage.cached_tokens
            assert (cached > 0) == (pooling == "last"), "a mean needs all of it"
            alone.append(found)
    assert alone[0].tobytes() == alone[1].tobytes(), "chunks change bits"


def test_vectors_as_they_are_have_the_models_length(shape: Shape) -> None:
    """Also where a scale of the logits is folded into the final norm."""
    write_sentence_files(shape.folder, "last", normalises=False)
    prompt = random_ids(40, 3)
    expected = shape.hidden(prompt)[-1]
    with Engine(str(shape.folder), **OPTIONS) as engine:
        found = engine.embed(prompt)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(np.linalg.norm(expected)))
        assert abs(np.linalg.norm(engine.embed(prompt, normalise=True)) - 1) < 1e-6


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Shape:
    return Shape("qwen3", tmp_path_factory.mktemp("qwen3"))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("run_ahead", [False, True])
def test_requests_of_all_kinds_share_steps(qwen3: Shape, pooling: Pooling, run_ahead: bool) -> None:
    """Answers, vectors and logits in the same steps, with too small a pool: all are what each would be alone."""
    loaded = load(EngineConfig(model=str(qwen3.folder), device="cpu"))
    prompts, logits_of = many_prompts(), (3, 130, 0)
    sampling = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    options = {**OPTIONS, "model": str(qwen3.folder), "prefix_cache": False}
    with Engine.from_loaded(EngineConfig(**options), loaded) as engine:
        answers = [engine.generate(prompt, sampling).token_ids for prompt in prompts]
        vectors = [engine.generate(prompt, READ, pooling=pooling).vector for prompt in prompts]
        logits = [engine.generate(prompt, READ, logits_of=logits_of).vector for prompt in prompts]
    options |= {"prefix_cache": True, "num_blocks": 44, "max_batch_tokens": 24, "run_ahead": run_ahead}
    with Engine.from_loaded(EngineConfig(**options), loaded) as engine:
        streams = []
        for prompt in prompts:
            streams.append(engine.submit(prompt, sampling))
            streams.append(engine.submit(prompt, READ, pooling=pooling))
            streams.append(engine.submit(prompt, READ, logits_of=logits_of))
        done = [stream.result() for stream in streams]
        assert [one.token_ids for one in done[::3]] == answers
        for found, expected in zip(done[1::3] + done[2::3], vectors + logits, strict=True):
            assert found.vector is not None and expected is not None
            assert found.vector.tobytes() == expected.tobytes()
        assert engine.statistics().num_preemptions or engine.core.prefix_cache.supply.num_evicted_blocks


def test_logits_of_tokens_are_those_of_the_model(qwen3: Shape) -> None:
    prompt, chosen = random_ids(50, 9), [7, 99, 7]
    with Engine(str(qwen3.folder), **OPTIONS) as engine:
        logits = engine.generate(prompt, READ, logits_of=chosen).vector
        scored = engine.score(prompt, [[7], [99]])
    assert logits is not None and logits.shape == (3,)
    assert logits[0] == logits[2]
    assert abs(logits[0] - logits[1] - (scored[0][0].logprob - scored[1][0].logprob)) < 1e-5


def test_a_mean_of_large_and_small_numbers_loses_none() -> None:
    readout = Readout(5, "mean")
    for at, number in enumerate([1e8, 1.0, 1.0, 1.0, -1e8]):
        readout.push(at, np.array([[number]], np.float32))
    assert readout.vector is not None and readout.vector[0] == np.float32(0.6)


@settings(deadline=None, max_examples=60)
@given(
    num_tokens=st.integers(1, 40),
    pooling=st.sampled_from(POOLINGS),
    chunks=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=8),
)
def test_a_readout_is_the_same_however_its_rows_come(
    num_tokens: int, pooling: Pooling, chunks: list[tuple[int, int]]
) -> None:
    """In chunks of any length, some of them again after a preemption; only what is still wanted has to come."""
    hidden = np.random.default_rng(num_tokens).normal(size=(num_tokens, 5)).astype(np.float32)
    whole, parts = Readout(num_tokens, pooling), Readout(num_tokens, pooling)
    whole.push(whole.first_wanted, hidden[whole.first_wanted :])
    end = 0
    for num_again, length in [*chunks, (0, num_tokens)]:
        begin = max(0, min(end, parts.first_wanted) - num_again)
        end = min(begin + length, num_tokens)
        first = max(begin, parts.first_wanted)
        if first < end:
            parts.push(first, hidden[first:end])
    assert whole.vector is not None and parts.vector is not None
    assert whole.vector.tobytes() == parts.vector.tobytes()
    expected = {"last": hidden[-1], "cls": hidden[0], "mean": hidden.astype(np.float64).mean(0)}[pooling]
    np.testing.assert_allclose(whole.vector, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "param"),
    [
        (lambda engine: engine.embed(""), "texts"),
        (lambda engine: engine.embed(["a", ""]), "texts[1]"),
        (lambda engine: engine.embed([[]]), "texts[0]"),
        (lambda engine: engine.embed(None), "texts"),
        (lambda engine: engine.embed(["a", 5]), "texts[1]"),
        (lambda engine: engine.embed("a", dimensions=0), "dimensions"),
        (lambda engine: engine.embed("a", dimensions=1000), "dimensions"),
        (lambda engine: engine.embed("a", dimensions=True), "dimensions"),
        (lambda engine: engine.embed("a", normalise="yes"), "normalise"),
        (lambda engine: engine.embed([[10**9]]), "prompt"),
        (lambda engine: engine.embed([[1] * 5000]), "prompt"),
        (lambda engine: engine.embed("a", adapter="none"), "adapter"),
        (lambda engine: engine.generate("a", READ, pooling="max"), "pooling"),
        (lambda engine: engine.generate("a", pooling="last"), "pooling"),
        (lambda engine: engine.generate("a", READ, pooling="last", logits_of=[1]), "pooling"),
        (lambda engine: engine.generate("a", READ, logits_of=[10**9]), "logits_of"),
        (lambda engine: engine.generate("a", READ, poolings="last"), "poolings"),
    ],
)
def test_bad_input_names_what_is_wrong_and_costs_no_other_request(
    nano: Engine, call: Callable[[Engine], Any], param: str
) -> None:
    other = nano.submit("Hello", SamplingParams(max_tokens=8, ignore_eos=True))
    with pytest.raises(RequestError) as caught:
        call(nano)
    assert caught.value.param == param
    assert other.result().usage.completion_tokens == 8


@pytest.fixture(scope="module")
def nano() -> Iterator[Engine]:
    with Engine("nano", **OPTIONS) as engine:
        yield engine


def test_without_sentence_files_it_is_the_last_token_normalised(nano: Engine) -> None:
    assert nano.embed([]).shape == (0, nano.model_config.hidden_size)
    found = nano.embed("Hello", normalise=False)
    ids = nano.tokenizer.encode_whole("Hello")
    assert found.tobytes() == nano.embed([ids], normalise=False).tobytes() == nano.embed(ids, normalise=False).tobytes()
    np.testing.assert_allclose(nano.embed("Hello"), found / np.linalg.norm(found), rtol=0, atol=1e-6)


def test_a_model_without_a_projection_makes_vectors_and_nothing_else(tmp_path: Path) -> None:
    shape = Shape("qwen3-base-untied", tmp_path)
    with Engine(str(tmp_path), **OPTIONS) as engine:
        assert not engine.core.generates
        for options in ({}, {"logits_of": [1]}):
            with pytest.raises(RequestError, match="no projection to the vocabulary"):
                engine.generate([1, 2, 3], READ, **options)
        vector = engine.embed([1, 2, 3])
        np.testing.assert_allclose(vector[0], pooled(shape.hidden([1, 2, 3]), "last"), rtol=0, atol=1e-5)


def write_tokenizer(folder: Path, end: str | None) -> int:
    """As Qwen3-Embedding's: byte-level, and a post-processor that ends a text. How many tokens it has."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, " * 9 + "yes\nno\nyes\nno\n" * 9], trainer)
    tokenizer.add_tokens(["<think>", "</think>"])
    if end is not None:
        ids = [(end, tokenizer.token_to_id(end))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    return int(tokenizer.get_vocab_size())


@pytest.mark.parametrize("end", ["<|endoftext|>", "<|im_end|>", None])
def test_a_whole_text_ends_as_transformers_ends_it(tmp_path: Path, end: str | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": write_tokenizer(tmp_path, end)}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    logging.getLogger("transformers").setLevel(logging.ERROR)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_folder(tmp_path)
    for text in ("the cat", "yes", " no  mat\n", ""):
        assert ours.encode_whole(text) == theirs(text)["input_ids"]
        assert ours.encode_prompt(text) == theirs(text, add_special_tokens=False)["input_ids"]


def test_rules_are_read_from_the_files(tmp_path: Path) -> None:
    assert VectorRules.from_folder(None) == VectorRules.from_folder(tmp_path) == VectorRules("last", True)
    for pooling in POOLINGS:
        for normalises in (False, True):
            write_sentence_files(tmp_path, pooling, normalises=normalises)
            assert VectorRules.from_folder(tmp_path) == VectorRules(pooling, normalises)
    for mode, pooling in (("lasttoken", "last"), ("mean", "mean"), ("cls", "cls")):  # as later versions write it
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        assert VectorRules.from_folder(tmp_path).pooling == pooling
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    assert VectorRules.from_folder(tmp_path).pooling == "mean"


@pytest.mark.parametrize(
    ("number", "pooling"), [(None, "last"), (0, "last"), (1, "mean"), (2, "cls"), (3, "last"), (4, "")]
)
def test_a_gguf_file_names_its_pooling(tmp_path: Path, number: int | None, pooling: str) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    if number is not None:
        writer.add_pooling_type(gguf.PoolingType(number))
    finish(writer)
    if pooling:
        assert VectorRules.from_folder(path) == VectorRules(pooling)  # type: ignore[arg-type]
    else:
        with pytest.raises(ModelError, match=r"qwen3\.pooling_type"):
            VectorRules.from_folder(path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", "{", "broken JSON"),
        ("modules.json", "{}", "an array of objects"),
        ("modules.json", '[{"path": ""}]', "type"),
        ("modules.json", '[{"path": "", "type": "a.Transformer"}, {"path": "../x", "type": "a.Pooling"}]', "path"),
        ("modules.json", '[{"path": "", "type": "a.Transformer"}, {"path": "2_Dense", "type": "a.Dense"}]', "Dense"),
        ("modules.json", '[{"path": "", "type": "a.Transformer"}, {"path": "gone", "type": "a.Pooling"}]', "gone"),
        ("1_Pooling/config.json", '{"pooling_mode": "max"}', "pooling_mode"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "pooling_mode_max_tokens"),
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": 1}', "pooling_mode_cls_token"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}',
            "pooling_mode_cls_token, pooling_mode_mean_tokens",
        ),
    ],
)
def test_files_that_say_something_else_are_refused_by_name(
    tmp_path: Path, file: str, content: str, message: str
) -> None:
    write_sentence_files(tmp_path, "last")
    (tmp_path / file).write_text(content)
    with pytest.raises(ModelError) as caught:
        VectorRules.from_folder(tmp_path)
    assert message in str(caught.value) and str(tmp_path) in str(caught.value)
