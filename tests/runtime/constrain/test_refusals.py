"""What an engine refuses, with the place and before it costs anything."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from phloem.errors import ConfigError, EngineStopped, PromptTooLong, QueueFull, RequestError
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import RequestOptions, SamplingParams

from ..fakes import fake_engine, threaded_engine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


@pytest.mark.parametrize(
    ("prompt", "params", "error", "words"),
    [
        ("", GREEDY, RequestError, "empty"),
        ([], GREEDY, RequestError, "empty"),
        ([1, 999], GREEDY, RequestError, "999 at position 1"),
        ([1, -1], GREEDY, RequestError, "-1 at position 1"),
        (
            list(range(256)) * 2,
            GREEDY,
            PromptTooLong,
            r"512 tokens do not fit the KV pool of 256 .* or raise .*num_blocks",
        ),
    ],
)
def test_bad_prompts_are_refused_with_their_place(
    prompt: str | list[int], params: SamplingParams, error: type[RequestError], words: str
) -> None:
    with pytest.raises(error, match=words):
        fake_engine().add(prompt, params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -1),
        ("max_tokens", 2.5),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("n", 0),
        ("logprobs", 21),
        ("stop", ("",)),
        ("stop", ("x",) * 17),
        ("seed", 2**64),
        ("presence_penalty", 3.0),
        ("repetition_penalty", 0.0),
    ],
)
def test_bad_sampling_parameters_name_the_field(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


def test_a_full_queue_refuses_and_keeps_what_it_has() -> None:
    engine = fake_engine(max_waiting_requests=2)
    ids = [engine.add([1], GREEDY), engine.add([2], GREEDY)]
    with pytest.raises(QueueFull):
        engine.add([3], GREEDY)
    finished = []
    while engine.has_work:
        finished += [delta.request_id for delta in engine.step() if delta.finish_reason]
    assert sorted(finished) == sorted(ids)


def test_a_closed_engine_says_so() -> None:
    with fake_engine() as engine:
        engine.generate([2] * 9, GREEDY, pin_ttl=99)
        engine.add([1], GREEDY)
        engine.step()
    assert engine.statistics().num_free_blocks == 64
    with pytest.raises(EngineStopped):
        engine.add([1], GREEDY)
    with threaded_engine() as other:
        pass
    with pytest.raises(EngineStopped, match="it was closed"):
        other.generate([1], GREEDY)


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="blok_size"):
        Engine("nano", blok_size=4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((None,), "prompt: expected text or token ids, got NoneType"),
        ((b"abc",), "prompt: expected text or token ids, got bytes"),
        (([1.5, 2.0],), "1.5 at position 0"),
        (([1], {"max_tokens": 3}), r"sampling: expected SamplingParams.*dict"),
        (([[1], [2]], [GREEDY, 5]), r"sampling: expected SamplingParams.*int"),
        (([1], GREEDY, {"type": "integer"}), r"constraint: expected phloem\.regex.*dict"),
        (([1], GREEDY, list[int]), r"constraint: list\[int\] is a type; write phloem\.json_schema\(list\[int\]\)"),
    ],
)
def test_what_is_taken_for_another_argument_is_named(arguments: tuple[Any, ...], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        fake_engine().generate(*arguments)
    assert SamplingParams(stop=None, stop_token_ids=None) == SamplingParams()  # type: ignore[arg-type]


def test_more_outputs_than_the_queue_holds_are_refused_at_once() -> None:
    """They would never fit; `generate` would go on trying."""
    engine = fake_engine(max_waiting_requests=2)
    with pytest.raises(RequestError, match="n: 3 outputs do not fit a queue of 2"):
        engine.generate([1], SamplingParams(n=3))
    assert len(engine.generate([1], SamplingParams(n=2, max_tokens=2))) == 2


@pytest.mark.parametrize(
    ("prompts", "arguments", "param"),
    [
        ([[1], [2]], {"sampling": [GREEDY]}, "sampling"),
        ([[1], [2]], {"sampling": []}, "sampling"),
        ([[1], [2]], {"constraint": [None] * 3}, "constraint"),
        ([[1], [2]], {"constraint": [None, "a"]}, "constraint"),
        ([1, 2], {"sampling": [GREEDY, GREEDY]}, "sampling"),
        ([1, 2], {"constraint": [None]}, "constraint"),
    ],
)
def test_lists_that_do_not_fit_the_prompts_are_refused(prompts: Any, arguments: Any, param: str) -> None:
    engine = fake_engine()
    with pytest.raises(RequestError) as caught:
        engine.generate(prompts, **arguments)
    assert caught.value.param == param and not engine.has_work


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("request_id", (5, None, ["a"])),
        ("adapter", (5, ["a"])),
        ("namespace", (5, None, ["a"], b"a")),
        ("priority", ("high", 1.5, None, True)),
        ("pin_ttl", ("1", None, True, -1.0, float("nan"), [1])),
        ("prediction", (5, [1.5], b"a", [10**6])),
        ("conversation", (5, None, [{"role": "user", "content": "a"}])),
        ("explain_cache", ("yes", 1, None)),
        ("deadline_seconds", ("1", True, 0, -1.0, float("nan"), [1])),
        ("shows_special", ("yes", 1, None)),
        ("stop_guard", (5, "a")),
    ],
)
def test_options_of_another_type_are_refused_by_name(name: str, values: tuple[Any, ...]) -> None:
    engine = fake_engine()
    for value in values:
        with pytest.raises(RequestError, match=name) as caught:
            engine.generate([1], GREEDY, **{name: value})
        assert caught.value.param == name and len(str(caught.value)) < 300
    assert len(engine.generate([1], GREEDY).token_ids) == 12
    assert name in RequestOptions.__annotations__


def test_every_option_of_a_request_is_checked() -> None:
    """None of them takes an object of an unknown type."""
    for name in RequestOptions.__annotations__:
        with pytest.raises(RequestError, match=name):
            fake_engine().generate([1], GREEDY, **{name: object()})
    for field in fields(SamplingParams):
        with pytest.raises(RequestError, match=field.name) as caught:
            SamplingParams(**{field.name: object()})
        assert caught.value.param == field.name


@pytest.mark.parametrize("value", [5, 1.5, True, 0, False])
@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "bad_words", "allowed_token_ids", "logit_bias"])
def test_what_holds_several_values_takes_no_single_one(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"ttl": "1"}, {"ttl": -1}, {"namespace": 5}, {"adapter": 5}])
def test_pins_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=min(arguments)):
        fake_engine().pin([1] * 40, **arguments)
