"""SGLang's frontend, feature by feature as its documentation has it: each works, or is refused by its name.

The programs are ours. Sources: SGLang's documentation, "Frontend Language", "Choices Methods", "Sampling Parameters".
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import phloem as ph
from phloem.runtime.program import ProgramState

from .serving import KEY, engine, serving

GREEDY: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 6}
Body = Callable[[ProgramState], Any]


@pytest.fixture(scope="module")
def backend() -> Iterator[ph.Engine]:
    with engine() as found:
        ph.set_default_backend(found)
        yield found
        ph.set_default_backend(None)


def run(body: Body, **options: Any) -> ProgramState:
    return ph.function(body).run(**{**GREEDY, **options})


def said(expression: Any, **options: Any) -> ProgramState:
    def body(s: ProgramState) -> None:
        s += "A number: " + expression

    return run(body, **options)


def roles(s: ProgramState) -> None:
    s += (
        ph.system("a") + ph.user_begin() + "b" + ph.user_end() + ph.assistant_begin() + ph.gen("x") + ph.assistant_end()
    )
    with s.user():
        s += "c"
    s.assistant_begin()
    s += ph.gen("y", stop="\n")
    s.assistant_end()


def control_flow(s: ProgramState) -> str:
    s += "Q" + ph.gen("tool", choices=["calculator", "search"])
    s += ph.gen("then", regex="[0-9]+", max_tokens=4) if s["tool"] == "calculator" else ph.gen("then", regex="[a-z]+")
    return str(s["then"])


def forks(s: ProgramState) -> None:
    s += "Two tips: "
    found = s.fork(2)
    for index, fork in enumerate(found):
        fork += f"{index}. " + ph.gen("tip", stop=".")
    s += found[0]["tip"] + found[1]["tip"]
    with s.copy() as copied:
        copied += ph.gen("aside", max_tokens=1)
    found.join()


def variables(s: ProgramState) -> None:
    with s.var_scope("scope"):
        s += "a" + ph.gen("x")
    s.set_var("y", s.get_var("x"))
    s["z"] = 3


def streamed() -> bool:
    state = run(lambda s: s.__iadd__("a" + ph.gen("x")), stream=True)
    return "".join(state.text_iter()) == state.text() and "".join(state.text_iter("x")) == state["x"]


def streamed_async() -> bool:
    async def read() -> tuple[str, str, Any]:
        state = run(lambda s: s.__iadd__("a" + ph.gen("x")), stream=True)
        whole = "".join([piece async for piece in state.text_async_iter()])
        pairs = [pair async for pair in state.text_async_iter(var_name="x", return_meta_data=True)]
        return whole, "".join(text for text, _ in pairs), pairs[-1][1]

    whole, text, info = asyncio.run(read())
    return whole.endswith(text) and info["completion_tokens"] <= 6


def batched() -> bool:
    @ph.function
    def ask(s: ProgramState, a: str) -> None:
        s += a + ph.gen("x")

    states = ask.run_batch([{"a": "b"}, {"a": "c"}], num_threads=2, progress_bar=False, **GREEDY)  # type: ignore[arg-type]
    lazily = ask.run_batch([{"a": "b"}], generator_style=True, max_new_tokens=2)
    return len(states) == 2 and len(next(lazily)["x"]) > 0


def bound() -> bool:
    """An argument may have the name of an option, by position or bound."""

    @ph.function
    def ask(s: ProgramState, temperature: str, n: int, backend: int = 5) -> tuple[str, int, int]:
        s += temperature + ph.gen("x")
        return temperature, n, backend

    first = ask.bind(n=3, backend=7).run("hot", temperature=0.0)
    second = ask.run_batch([{"temperature": "a", "n": 2, "backend": 1}], **GREEDY)[0]  # type: ignore[arg-type]
    return (first.ret_value, second.ret_value) == (("hot", 3, 7), ("a", 2, 1))


def scored(**options: Any) -> bool:
    """Log-probabilities of the prompt, from a position on; with `max_tokens=0` nothing is generated."""
    info = said(ph.gen("x", max_tokens=0, return_logprob=True, logprob_start_len=2, top_logprobs_num=2)).get_meta_info(
        "x"
    )
    by_run = said(ph.gen("x"), return_logprob=True, logprob_start_len=2, top_logprobs_num=2).get_meta_info("x")
    entries = info["input_token_logprobs"]
    tokens = len(entries) == info["prompt_tokens"] - 2 and info["completion_tokens"] == 0
    return tokens and by_run["input_token_logprobs"] == entries and len(by_run["input_top_logprobs"][0]) == 2


def text_in_logprobs() -> bool:
    state = said(ph.gen("x", return_logprob=True, return_text_in_logprobs=True))
    return "".join(text for _, _, text in state.get_meta_info("x")["output_token_logprobs"]).startswith(state["x"])


def endpoint() -> bool:
    with serving() as (url, _):
        ph.set_default_backend(ph.RuntimeEndpoint(url, KEY))
        state = said(ph.gen("x"))
        return len(state["x"]) > 0 and ph.flush_cache() >= 0


def runtime() -> bool:
    found = ph.Runtime(model_path="nano", num_blocks=64)
    text = said(ph.gen("x"), backend=found)["x"]
    found.shutdown()
    return len(text) > 0


def nested() -> bool:
    @ph.function
    def inner(s: ProgramState, a: str) -> None:
        s += a + ph.gen("x")

    return run(lambda s: inner(s, "b") is None and None)["x"] is not None


WORK: dict[str, Callable[[], Any]] = {
    "function, gen, run": lambda: said(ph.gen("x"))["x"],
    "call of a program": lambda: ph.function(lambda s: s.__iadd__("a" + ph.gen("x", max_tokens=1)))()["x"],
    "system, user, assistant, begin and end": lambda: len(run(roles).messages()) == 5,
    "control flow, ret_value": lambda: run(control_flow).ret_value,
    "fork, copy, join": lambda: len(run(forks)["tip"]) == 2,
    "var_scope, get_var, set_var": lambda: run(variables)["scope"].startswith("a"),
    "gen(choices=…), select": lambda: said(ph.select("x", ["one", "two"]))["x"] in ("one", "two"),
    "choices methods": lambda: all(
        said(ph.select("x", ["one", "two"], choices_method=method))["x"]
        for method in (ph.token_length_normalized, ph.greedy_token_selection, ph.unconditional_likelihood_normalized)
    ),
    "gen(regex=…)": lambda: said(ph.gen("x", regex="[0-9]{3}"))["x"].isdigit(),
    "gen(json_schema=…)": lambda: said(ph.gen("x", json_schema='{"type": "integer", "minimum": 0, "maximum": 9}'))["x"],
    "gen_int, gen_string, dtype": lambda: said(ph.gen_int("x") + ph.gen_string("y") + ph.gen("z", dtype=bool))["z"],
    "gen(n=2)": lambda: len(said(ph.gen("x", n=2))["x"]) == 2,
    "stop, stop_token_ids, min_tokens, ignore_eos": lambda: said(
        ph.gen("x", stop=["\n"], stop_token_ids=[7], min_tokens=1, ignore_eos=True)
    )["x"],
    "temperature, top_p, top_k, min_p, penalties": lambda: said(
        ph.gen("x", temperature=0.7, top_p=0.9, top_k=9, min_p=0.1, frequency_penalty=0.5, presence_penalty=0.5)
    )["x"],
    "return_logprob, top_logprobs_num": lambda: said(
        ph.gen("x", return_logprob=True, top_logprobs_num=2)
    ).get_meta_info("x")["output_top_logprobs"],
    "logprob_start_len, max_tokens=0": scored,
    "logprob_start_len=-1": lambda: (
        "input_token_logprobs" not in said(ph.gen("x", return_logprob=True, logprob_start_len=-1)).get_meta_info("x")
    ),
    "return_text_in_logprobs": text_in_logprobs,
    "max_new_tokens of a run": lambda: said(ph.gen("x"), max_new_tokens=2).get_meta_info("x")["completion_tokens"] <= 2,
    "get_meta_info": lambda: said(ph.gen("x")).get_meta_info("x")["prompt_tokens"],
    "normalized_prompt_logprobs": lambda: all(
        math.isfinite(mean)
        for mean in said(ph.select("x", ["a", "b"])).get_meta_info("x")["normalized_prompt_logprobs"]
    ),
    "text, messages, sync, error": lambda: run(lambda s: s.sync()).error() is None,
    "stream, text_iter": streamed,
    "text_async_iter(return_meta_data=True)": streamed_async,
    "run_batch": batched,
    "bind, arguments with names of options": bound,
    "a program in a program": nested,
    "flush_cache": lambda: ph.flush_cache() >= 0,
    "RuntimeEndpoint, set_default_backend": endpoint,
    "Runtime": runtime,
    "OpenAI": lambda: ph.OpenAI("gpt-5"),
    "Anthropic": lambda: ph.Anthropic("claude"),
}


@pytest.mark.parametrize("feature", WORK)
def test_a_feature_works(feature: str, backend: ph.Engine) -> None:
    ph.set_default_backend(backend)
    assert WORK[feature]()


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    **{
        name: (lambda name=name: getattr(ph, name), AttributeError)  # type: ignore[misc]
        for name in ("image", "video", "separate_reasoning", "LiteLLM", "VertexAI", "get_server_info", "global_config")
    },
    "stop_regex": (lambda: ph.gen("x", stop_regex="a"), TypeError),  # type: ignore[call-arg]
    "num_api_spec_tokens": (lambda: ph.function(num_api_spec_tokens=8), TypeError),  # type: ignore[call-arg]
    "chat_template_name": (lambda: ph.RuntimeEndpoint("http://x", chat_template_name="y"), TypeError),  # type: ignore[call-arg]
    "is_chat_model": (lambda: ph.OpenAI("x", is_chat_model=True), TypeError),  # type: ignore[call-arg]
    "use_thread": (lambda: run(lambda s: None, use_thread=False), ph.ProgramError),
    "trace": (lambda: ph.function(lambda s: None).trace, AttributeError),  # type: ignore[attr-defined]
    "compile": (lambda: ph.function(lambda s: None).compile, AttributeError),  # type: ignore[attr-defined]
    "logprob_start_len": (lambda: ph.gen("x", logprob_start_len=-2), ph.ProgramError),
    "temperature": (lambda: ph.function(lambda s, temperature: None).run(temperature=1), ph.ProgramError),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_a_feature_is_refused_by_its_name(feature: str, backend: ph.Engine) -> None:
    ph.set_default_backend(backend)
    use, kind = REFUSED[feature]
    with pytest.raises(kind, match=feature):
        use()
