"""The same programs on an engine in this process and on phloem's server: they say the same, to the last token."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

import phloem as ph
from phloem.errors import PromptTooLong, RequestError
from phloem.runtime.engine.async_engine import AsyncEngine

from .serving import KEY, engine, serving

SYSTEM = "You read documents. Answer briefly, or give JSON."
DOCUMENT = "Meet Ravel Tamsen, 41 years old. Home is Dorvik. Ravel works as a baker. Priority: high."
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12}
OWN_COUNTS = ("id", "cached_tokens", "loaded_tokens", "drafted_tokens", "jumped_tokens")  # of what ran before


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


class Picky(Person):
    @field_validator("name")
    @classmethod
    def _never(cls, value: str) -> str:
        raise ValueError("not this one")


@pytest.fixture(scope="module")
def local() -> Iterator[ph.Engine]:
    with engine() as found:
        yield found


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, AsyncEngine]]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def remote(served: tuple[str, AsyncEngine]) -> ph.RuntimeEndpoint:
    return ph.RuntimeEndpoint(served[0], KEY, timeout=60.0)


def chat(s: ph.ProgramState) -> None:
    """Turns, a stop string inside a token, text after a generation."""
    s += ph.system(SYSTEM) + ph.user(f"{DOCUMENT}\n\nWho is it?")
    s += ph.assistant(ph.gen("who", stop="e") + "|" + ph.gen("more", max_tokens=4))
    s += ph.user("<|assistant|> Which city? é😀") + ph.assistant(ph.gen("city", stop=["ik", "\n"]))


def plain(s: ph.ProgramState) -> None:
    """No messages; from nothing; several outputs."""
    s += ph.gen("start", max_tokens=3) + " Ada Lovelace" + ph.gen("next", n=2, temperature=0.7, seed=3)


def constrained(s: ph.ProgramState) -> None:
    s += ph.user(f"{DOCUMENT}\n\nExtract the person as JSON.")
    with s.assistant():
        s += ph.gen("person", json_schema=Person, max_tokens=60)
    s += ph.user("Again") + ph.assistant(ph.gen("typed", type=Person, max_tokens=60))
    s += ph.user("Again") + ph.assistant(ph.gen("picky", json_schema=Picky, max_tokens=60))
    s += ph.gen("regex", regex=r"[0-9]{2}-[ab]{2}") + ph.gen_int("int") + ph.gen("bool", dtype=bool)
    s += ph.gen("choice", constraint=ph.choice(["yes", "no"])) + ph.gen(
        "any", constraint=ph.json_object(), max_tokens=40
    )
    s += ph.gen("ebnf", constraint=ph.grammar('root ::= "a" [0-9] "b"'))
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}
    for extra in ("schema", "never"):
        spec = ph.json_schema(schema, whitespace="compact", key_order="any", extra_keys=extra)  # type: ignore[arg-type]
        s += ph.gen(extra, constraint=spec, max_tokens=30)
    there = {"https://example.org/b": {"enum": [1, 2]}}
    s += ph.gen("there", constraint=ph.json_schema({"$ref": "https://example.org/b"}, resources=there), max_tokens=4)
    tag = {"begin": "<t>", "schema": Person, "end": "</t>"}
    s += ph.gen("tag", constraint=ph.structural_tag([tag], at_least_one=True, stop_after_first=True), max_tokens=60)


def scored(s: ph.ProgramState) -> None:
    s += ph.user(DOCUMENT) + ph.assistant_begin()
    s += ph.gen("all", max_tokens=0, return_logprob=True, logprob_start_len=0, top_logprobs_num=2)
    s += ph.gen("both", max_tokens=4, return_logprob=True, logprob_start_len=20)
    s += ph.gen("own", logprobs=3, max_tokens=4) + ph.assistant_end()


def parameters(s: ph.ProgramState) -> None:
    s += DOCUMENT + ph.gen("a", temperature=1.2, seed=7, top_k=40, top_p=0.9, min_p=0.01, presence_penalty=0.5)
    s += ph.gen("b", min_tokens=5, max_tokens=8, ignore_eos=True, frequency_penalty=1.0, stop_token_ids=[7])


PROGRAMS = [chat, plain, constrained, scored, parameters]


def told(state: ph.ProgramState) -> dict[str, Any]:
    """All that a state has to say, but for counts that depend on what ran before."""

    def of(name: str) -> Any:
        info = state.get_meta_info(name)
        infos = info if isinstance(info, list) else [info]
        kept = [one and {key: value for key, value in one.items() if key not in OWN_COUNTS} for one in infos]
        try:
            parsed = state.parsed(name)
        except RequestError as error:
            parsed = str(error)
        return state[name], parsed, kept

    names = sorted(state._interpreter.variables)
    assert names
    return {
        "text": state.text(),
        "ids": state.token_ids(),
        "messages": state.messages(),
        "variables": {name: of(name) for name in names},
    }


@pytest.mark.parametrize(("body", "stream"), [*((body, False) for body in PROGRAMS), (chat, True)])
def test_a_program_says_the_same_over_http(
    body: Callable[[ph.ProgramState], None], stream: bool, local: ph.Engine, remote: ph.RuntimeEndpoint
) -> None:
    program = ph.function(body)
    here = program.run(backend=local, **GREEDY)
    there = program.run(backend=remote, stream=stream, **GREEDY)
    assert "".join(there.text_iter()) == here.text()
    assert told(there) == told(here)


@pytest.mark.parametrize("stream", [False, True])
def test_forks_inside_a_generation_go_on_from_what_is_written(stream: bool, remote: ph.RuntimeEndpoint) -> None:
    def tell(s: ph.ProgramState, **sampling: Any) -> None:
        s += ph.user("Tell a story.") + ph.assistant_begin()
        s += ph.gen("story", max_tokens=200, ignore_eos=True, logprobs=0, **sampling)
        next(iter(s.text_iter("story")))
        forks = s.fork(2, inside="story")
        s["ends"] = [fork["story"] for fork in forks]
        s["texts"] = [fork.text() for fork in forks]
        s["infos"] = [fork.get_meta_info("story") for fork in forks]
        [deeper] = forks[0].fork(1, inside="story")
        s["deeper"] = deeper["story"]

    program = ph.function(tell)
    likeliest = program.run(backend=remote, temperature=0.0, stream=stream)
    assert likeliest["ends"] == [likeliest["story"]] * 2 and likeliest["deeper"] == likeliest["story"]
    state = program.bind(temperature=1.0, seed=4, regex="[a-z ]{150,160}").run(backend=remote, stream=stream)
    for end, text, info in zip(state["ends"], state["texts"], state["infos"], strict=True):
        assert text.endswith(end) and re.fullmatch("[a-z ]{150,160}", end)
        assert len(info["output_token_logprobs"]) == info["forked_tokens"] + info["completion_tokens"]


METHODS = [ph.token_length_normalized, ph.greedy_token_selection, ph.unconditional_likelihood_normalized]
TEXTS = st.sampled_from(["Hello", " a", "\n", "é😀", "<s>", "<|user|>", "Ravel ", " ", "x y  z", "漢字\n\n"])
STOPS = st.sampled_from([None, "e", ["a", "i"]])
CHOICES = st.lists(st.sampled_from(["Dorvik", " Dor", "é", "yes", "a b"]), min_size=2, max_size=3, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("gen"), STOPS, st.sampled_from([None, "[a-z ]{2,5}", "(é|漢){1,2}"])),
        st.tuples(st.just("select"), CHOICES, st.sampled_from(METHODS)),
        st.tuples(st.sampled_from(["gather_variable", "concate_and_append"]), TEXTS, st.integers(1, 2)),
    ),
    max_size=4,
)
MESSAGES = st.lists(st.tuples(STEPS, STEPS), max_size=2)


def perform(s: ph.ProgramState, steps: list[Any], name: str) -> None:
    for number, step in enumerate(steps):
        match step:
            case ("text", text):
                s += text
            case ("gen", stop, pattern):
                s += ph.gen(f"{name}{number}", stop=stop, regex=pattern, max_tokens=16 if pattern else 4, logprobs=1)
            case ("select", choices, method):
                s += ph.select(f"{name}{number}", choices, choices_method=method)
            case (mode, text, size):
                forks = s.fork(size)
                gens = [text + ph.gen(f"{name}{number}", max_tokens=3, temperature=0.8, seed=at) for at in range(size)]
                forks += gens
                forks.join(mode)


@given(STEPS, MESSAGES, st.booleans())
@settings(max_examples=36)
def test_a_random_program_says_the_same_over_http(
    local: ph.Engine,
    remote: ph.RuntimeEndpoint,
    before: list[Any],
    messages: list[tuple[list[Any], list[Any]]],
    stream: bool,
) -> None:
    def body(s: ph.ProgramState) -> None:
        s["set"] = 1
        perform(s, [] if messages else before, "plain")
        for number, (question, answer) in enumerate(messages):
            with s.user():
                perform(s, question, f"q{number}")
            with s.assistant():
                perform(s, answer, f"a{number}")

    here = ph.function(body).run(backend=local, **GREEDY)
    there = ph.function(body).run(backend=remote, stream=stream, **GREEDY)
    assert "".join(there.text_iter()) == here.text()
    assert told(there) == told(here)


def test_usage_says_what_was_cached(remote: ph.RuntimeEndpoint) -> None:
    remote.flush_cache()
    assert ph.flush_cache(remote) == 0
    first, second = (ph.function(chat).run(backend=remote, **GREEDY).get_meta_info("who") for _ in range(2))
    assert first["cached_tokens"] == 0 and second["cached_tokens"] == second["prompt_tokens"] - 1
    apart = ph.function(chat).run(backend=remote, namespace="apart", **GREEDY).get_meta_info("who")
    assert apart["cached_tokens"] == 0


def test_what_the_server_refuses_comes_at_the_line_in_its_own_words(
    served: tuple[str, AsyncEngine], remote: ph.RuntimeEndpoint
) -> None:
    def ask(s: ph.ProgramState, text: str = "Hi", **arguments: Any) -> None:
        s += ph.user(text) + ph.assistant(ph.gen("x", **arguments))

    program = ph.function(ask)
    place = rf"program ask, {__file__}:\d+, "
    with pytest.raises(
        ph.ProgramError, match=place + r"gen\('x'\): .* answered 400: .*between 0 and|less than"
    ) as caught:
        program.run(backend=remote, temperature=3.0)
    assert isinstance(caught.value.__cause__, RequestError)
    with pytest.raises(ph.ProgramError, match=place + ".*maximum context length") as caught:
        program.run("x " * 5000, backend=remote)
    assert isinstance(caught.value.__cause__, PromptTooLong)
    with pytest.raises(ph.ProgramError, match=place + r".* answered 404: .*`nope`"):
        program.run(backend=remote, adapter="nope")
    with pytest.raises(ph.ProgramError, match=place + r".* answered 401: .*phloem.RuntimeEndpoint\(url, api_key="):
        program.run(backend=served[0])
    with pytest.raises(ph.ProgramError, match=place + r".* answered 404: .*`other`"):
        program.run(backend=ph.RuntimeEndpoint(served[0], KEY, model="other"))
    settled(served[1])


def settled(async_engine: AsyncEngine) -> int:
    """The tokens generated so far, once nothing runs or waits."""
    engine = async_engine.engine
    while async_engine.call(lambda: engine.core.has_work).result(60):
        threading.Event().wait(0.005)
    return async_engine.call(lambda: engine.statistics().completion_tokens).result(60)


@pytest.mark.parametrize("how", ["cancel", "drop", "raise"])
def test_a_program_that_ends_early_gives_its_seats_back(
    how: Literal["cancel", "drop", "raise"], served: tuple[str, AsyncEngine], remote: ph.RuntimeEndpoint
) -> None:
    @ph.function
    def endless(s: ph.ProgramState) -> None:
        s += "a"
        forks = s.fork(2)
        forks += ph.gen("x", max_tokens=3000, ignore_eos=True)
        if how == "raise":
            next(iter(forks[0].text_iter("x")))
            raise KeyError("of its own")
        forks.join()

    before = settled(served[1])
    state = endless.run(backend=remote, stream=True)
    if how == "raise":
        with pytest.raises(ph.ProgramError, match="of its own"):
            state.sync()
    else:
        while served[1].call(served[1].engine.statistics).result(60).num_running < 2:
            threading.Event().wait(0.002)
    if how == "cancel":
        state.cancel()
    del state
    assert settled(served[1]) - before < 2 * 3000


def test_forks_and_batches_share_the_server(local: ph.Engine, remote: ph.RuntimeEndpoint) -> None:
    program = ph.function(ask_about)
    items = [{"question": question} for question in ("Who is it?", "Which city?", "What is the job?") * 3]
    here = [state["answer"] for state in program.run_batch(items, backend=local, **GREEDY)]
    assert [state["answer"] for state in program.run_batch(items, backend=remote, num_threads=4, **GREEDY)] == here


def ask_about(s: ph.ProgramState, question: str) -> None:
    s += ph.system(SYSTEM) + ph.user(f"{DOCUMENT}\n\n{question}") + ph.assistant(ph.gen("answer"))


@pytest.mark.parametrize("kind", ["openai", "vllm", "anthropic"])
def test_chats_say_the_same_through_other_apis(kind: str, local: ph.Engine, served: tuple[str, AsyncEngine]) -> None:
    def program(s: ph.ProgramState) -> None:
        s += ph.system(SYSTEM) + ph.user(f"{DOCUMENT}\n\nWhich city?") + ph.assistant(ph.gen("city"))
        s += ph.user("Extract the person as JSON.") + ph.assistant(ph.gen("person", type=Person, max_tokens=60))
        if kind == "vllm":
            s += ph.user("More") + ph.assistant("It " + ph.gen("more", regex="(is|was) [a-z]{3}"))
            s += ph.user("Yes?") + ph.assistant(ph.gen("yes", constraint=ph.choice(["yes", "no"])))

    url = served[0]
    backends: dict[str, Any] = {
        "openai": lambda: ph.OpenAI("nano", base_url=f"{url}/v1", api_key=KEY),
        "vllm": lambda: ph.OpenAI("nano", base_url=f"{url}/v1", api_key=KEY, dialect="vllm"),
        "anthropic": lambda: ph.Anthropic("nano", base_url=url, api_key=KEY),
    }
    here = ph.function(program).run(backend=local, **GREEDY)
    there = ph.function(program).run(backend=backends[kind](), **GREEDY)
    assert there.messages() == here.messages() and there["person"] == here["person"]
    counts = [state.get_meta_info("city")["prompt_tokens"] for state in (here, there)]
    assert counts[0] == counts[1]


def test_plain_text_goes_to_completions(local: ph.Engine, served: tuple[str, AsyncEngine]) -> None:
    @ph.function
    def program(s: ph.ProgramState) -> None:
        s += DOCUMENT + " Ravel" + ph.gen("x", logprobs=1) + " The town is" + ph.select("town", [" Dorvik", " Paris"])

    here = program.run(backend=local, **GREEDY)
    there = program.run(backend=ph.OpenAI("nano", base_url=f"{served[0]}/v1", api_key=KEY), **GREEDY)
    assert (there["x"], there["town"]) == (here["x"], here["town"])
    shown = [state.get_meta_info("x")["output_token_logprobs"] for state in (here, there)]
    assert [p for p, _, _ in shown[0]] == [p for p, _, _ in shown[1]]
