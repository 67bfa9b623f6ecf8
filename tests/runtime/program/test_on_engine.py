"""Programs on a real engine with the bundled model: what they cost, and that their answers are the engine's own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

import phloem as ph
from phloem.errors import EngineStopped, ProgramError, PromptTooLong, RequestError
from phloem.runtime.program import ProgramState

SYSTEM = "You read documents. Answer briefly, or give JSON."
DOCUMENT = (
    "Meet Ravel Tamsen, 41 years old. Home is Dorvik. Ravel works as a baker. The work is done from home. "
    "Ticket 4711 by tamsen. The lamp is broken. Priority: high. It is open."
)
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(scope="module")
def engine() -> Iterator[ph.Engine]:
    with ph.Engine(num_blocks=2048, check_invariants=True, seed=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def nano_pair() -> Iterator[tuple[ph.Engine, ph.Engine]]:
    """One engine that does not jump, and one that does."""
    with ph.Engine(num_blocks=256, jump="off") as stepping, ph.Engine(num_blocks=256) as jumping:
        yield stepping, jumping


@pytest.fixture
def fresh(engine: ph.Engine) -> ph.Engine:
    """The engine with nothing in its cache."""
    engine.flush_cache()
    return engine


class Picky(BaseModel):
    """Asks for more than its schema can say."""

    town: str = Field(max_length=5)

    @field_validator("town")
    @classmethod
    def _never(cls, value: str) -> str:
        raise KeyError(value)


def ask(s: ProgramState, question: str) -> None:
    s += ph.system(SYSTEM) + ph.user(f"{DOCUMENT}\n\n{question}") + ph.assistant(ph.gen("answer"))


QUESTIONS = ["Who is it?", "Which city?", "What is the job?", "How old is Ravel?", "What is broken?"]


def messages(question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{DOCUMENT}\n\n{question}"}]


def test_a_program_says_what_a_chat_request_says_and_shares_its_cache(fresh: ph.Engine) -> None:
    state = ph.function(ask).run("Which city?", backend=fresh, **GREEDY)
    completion = fresh.chat(messages("Which city?"), ph.SamplingParams(**GREEDY))
    assert state["answer"] == completion.text
    num_tokens = completion.usage.prompt_tokens
    assert state.get_meta_info("answer")["prompt_tokens"] == num_tokens
    assert state.get_meta_info("answer")["cached_tokens"] == 0
    assert completion.usage.cached_tokens >= (num_tokens - 1) // 16 * 16


def test_a_batch_answers_in_order_as_one_by_one(fresh: ph.Engine) -> None:
    program = ph.function(ask)
    items = [{"question": question} for question in QUESTIONS * 4]
    alone = [fresh.chat(messages(question), ph.SamplingParams(**GREEDY)).text for question in QUESTIONS]
    batch = program.run_batch(items, backend=fresh, **GREEDY)
    assert [state["answer"] for state in batch] == alone * 4
    lazily = program.run_batch(items, backend=fresh, generator_style=True, num_threads=3, **GREEDY)
    assert [state["answer"] for state in lazily] == alone * 4


def test_forks_compute_their_common_prefix_once(fresh: ph.Engine) -> None:
    num_forks = 6

    @ph.function
    def program(s: ProgramState) -> None:
        s += ph.system(SYSTEM)
        s += ph.user_begin() + DOCUMENT + "\n\n"
        forks = s.fork(num_forks)
        forks += lambda i: QUESTIONS[i % 5] + ph.user_end() + ph.assistant(ph.gen("answer"))
        forks.join()
        s["prefix"] = len(forks[0].token_ids())

    before = fresh.statistics()
    state = program.run(backend=fresh, **GREEDY)
    infos = state.get_meta_info("answer")
    shared = (min(info["prompt_tokens"] for info in infos) - 24) // 16 * 16
    assert shared > 64
    assert sorted(info["cached_tokens"] >= shared for info in infos) == [False] + [True] * (num_forks - 1)
    computed = fresh.statistics().num_computed_tokens - before.num_computed_tokens
    assert computed < shared + num_forks * (24 + 16 + 12)


def test_every_turn_finds_all_earlier_turns_in_the_cache(fresh: ph.Engine) -> None:
    @ph.function
    def chat(s: ProgramState) -> None:
        s += ph.system(SYSTEM)
        for turn, question in enumerate(QUESTIONS):
            s += ph.user(question if turn else f"{DOCUMENT}\n\n{question}")
            s += ph.assistant(ph.gen(f"answer {turn}", stop="e"))
            s[f"length {turn}"] = len(s.token_ids())

    state = chat.run(backend=fresh, **GREEDY)
    for turn in range(1, len(QUESTIONS)):
        info = state.get_meta_info(f"answer {turn}")
        earlier = state.get_meta_info(f"answer {turn - 1}")
        # Only what was cut off at a stop string, and the rest of a block, is computed again.
        assert info["cached_tokens"] >= (earlier["prompt_tokens"] - 1) // 16 * 16
        assert info["cached_tokens"] >= (state[f"length {turn - 1}"] - 20) // 16 * 16


def test_text_and_ids_agree_after_stop_strings(fresh: ph.Engine) -> None:
    @ph.function
    def program(s: ProgramState) -> None:
        s += ph.user("Repeat: banana") + ph.assistant(ph.gen("a", stop="a", max_tokens=30) + "|" + ph.gen("b"))

    for seed in range(5):
        state = program.run(backend=fresh, seed=seed, temperature=1.5, max_tokens=8)
        assert "a" not in state["a"]
        # Special tokens, the markers' and any that the model said, have no text of their own.
        assert fresh.tokenizer.decode(state.token_ids()) == re.sub(r"<\|\w+\|>|<s>", "", state.text())


@pytest.mark.parametrize("method", [ph.token_length_normalized, ph.greedy_token_selection])
def test_select_equals_scoring_each_choice_from_scratch(fresh: ph.Engine, method: Any) -> None:
    choices = ["Dorvik", "a baker", "Dorvan", "the lamp", "41"]

    @ph.function
    def program(s: ProgramState) -> None:
        s += ph.system(SYSTEM) + ph.user(f"{DOCUMENT}\n\nWhich city?")
        s += ph.assistant(ph.select("city", choices, choices_method=method))

    with ph.Engine(num_blocks=256, prefix_cache=False) as uncached:
        prompt = uncached.tokenizer.apply_chat_template(messages("Which city?"))
        alone = [uncached.score(prompt, [uncached.tokenizer.encode(choice)])[0] for choice in choices]
    means = [sum(token.logprob for token in tokens) / len(tokens) for tokens in alone]
    state = program.run(backend=fresh)
    info = state.get_meta_info("city")
    assert info["normalized_prompt_logprobs"] == pytest.approx(means, abs=1e-4)
    assert info["prompt_tokens"] == len(prompt)
    if method is ph.token_length_normalized:
        assert state["city"] == choices[means.index(max(means))]
    else:
        first = [tokens[0].logprob for tokens in alone]
        assert state["city"].startswith(choices[first.index(max(first))][0])


def test_constraints_hold_inside_programs(fresh: ph.Engine) -> None:
    @ph.function
    def program(s: ProgramState) -> None:
        s += "It was on " + ph.gen("date", regex=r"20\d\d-\d\d-\d\d") + " at " + ph.gen_int("hour") + " o'clock, "
        s += ph.gen("sure", dtype=bool) + ph.gen("pick", constraint=ph.choice(["!", "?"]))

    for seed in range(4):
        state = program.run(backend=fresh, seed=seed, max_tokens=16)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", state["date"])
        assert state.parsed("hour") is None or isinstance(state.parsed("hour"), int)
        assert isinstance(state.parsed("sure"), bool) and state["pick"] in "!?"


def test_a_prompt_that_cannot_fit_raises_at_its_line(fresh: ph.Engine) -> None:
    with pytest.raises(ProgramError, match=r"test_on_engine.py:\d+, gen\('answer'\): prompt: \d+ tokens") as caught:
        ph.function(ask).run("x " * 5000, backend=fresh)
    assert isinstance(caught.value.__cause__, PromptTooLong)


def test_failures_in_a_large_batch_neither_hang_nor_leak(fresh: ph.Engine) -> None:
    @ph.function
    def sometimes(s: ProgramState, index: int) -> None:
        s += f"Number {index}"
        forks = s.fork(3)
        forks += lambda i: ph.gen("x", regex="[" if index % 7 == 3 and i == 1 else "[0-9]+", max_tokens=4)
        forks.join()
        if index % 7 == 5:
            raise ValueError(index)

    states = sometimes.run_batch([(i,) for i in range(70)], backend=fresh, return_errors=True)
    failed = [index for index, state in enumerate(states) if state.error() is not None]
    assert failed == [index for index in range(70) if index % 7 in (3, 5)]
    with pytest.raises(ProgramError):
        sometimes.run_batch([(i,) for i in range(70)], backend=fresh)
    ph.function(ask).run("Who is it?", backend=fresh, **GREEDY)
    now = fresh.statistics()
    assert now.num_running == now.num_waiting == 0
    assert now.num_free_blocks + now.num_cached_blocks == now.num_blocks


def test_an_engine_that_stops_ends_its_programs() -> None:
    driver = ph.AsyncEngine(ph.Engine(num_blocks=256))

    @ph.function
    def endless(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(3)
        forks += ph.gen("x", max_tokens=2000, ignore_eos=True)
        next(iter(forks[0].text_iter("x")))
        driver.stop()
        forks.join()

    state = endless.run(backend=driver, stream=True)
    with pytest.raises(ProgramError, match="the engine has stopped") as caught:
        state.sync()
    assert isinstance(caught.value.__cause__, EngineStopped)


@pytest.mark.parametrize("way", ["drop", "leave", "cancel"])
def test_a_stream_that_nobody_follows_gives_its_seats_back(fresh: ph.Engine, way: str) -> None:
    @ph.function
    def endless(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(3)
        forks += ph.gen("x", max_tokens=4000, ignore_eos=True)
        forks.join()

    said = fresh.statistics().completion_tokens
    state = endless.run(backend=fresh, stream=True)
    while len(state._interpreter.run._streams) < 3:  # the engine may know of them before the run does
        time.sleep(0.001)
    if way == "leave":
        next(pieces := state.text_iter())
        pieces.close()  # type: ignore[attr-defined]
    elif way == "cancel":
        state.cancel()
        seats = fresh.step_thread.call(fresh.core.statistics).result()  # between two steps, after what came before
        assert seats.num_running == seats.num_waiting == 0
    del state
    deadline = time.monotonic() + 60
    while fresh.statistics().num_running and time.monotonic() < deadline:
        time.sleep(0.001)
    now = fresh.statistics()
    assert now.num_running == now.num_waiting == 0 and now.completion_tokens - said < 3 * 4000
    assert ph.function(ask).run("Who is it?", backend=fresh, **GREEDY)["answer"]


class Ticket(BaseModel):
    """What a tag holds."""

    number: int = Field(ge=0, le=9999)
    topic: str = Field(max_length=12)


def test_tags_in_free_text_hold_what_their_schema_says(fresh: ph.Engine) -> None:
    tag = {"begin": "<ticket>", "schema": Ticket, "end": "</ticket>"}

    @ph.function
    def report(s: ProgramState, sample: int, whole: bool) -> None:
        spec = ph.structural_tag([tag], triggers=["<tick"], at_least_one=True, stop_after_first=whole)
        s += ph.user(DOCUMENT) + ph.assistant(ph.gen("text", max_tokens=60, seed=sample, constraint=spec))

    for seed in range(6):
        text = report.run(sample=seed, whole=seed % 2 == 0, backend=fresh)["text"]
        tags = re.findall(r"<ticket>(.*?)</ticket>", text, re.DOTALL)
        assert tags and text.startswith("<ticket>") and text.count("<tick") == len(tags)
        assert [Ticket.model_validate_json(held) for held in tags]
        assert seed % 2 or text == f"<ticket>{tags[0]}</ticket>"


def test_tags_and_grammars_come_out_the_same_with_and_without_jumping(nano_pair: tuple[ph.Engine, ph.Engine]) -> None:
    tag = {"begin": "<ticket>", "schema": Ticket, "end": "</ticket>"}
    number = 'root ::= sum\nsum ::= sum "+" term | term\nterm ::= "(" sum ")" | [0-9]{1,3}'
    for spec in (ph.structural_tag([tag], at_least_one=True), ph.grammar(number)):
        outputs = [
            engine.generate(DOCUMENT, ph.SamplingParams(max_tokens=48, temperature=0), constraint=spec)
            for engine in nano_pair
        ]
        assert outputs[0].token_ids == outputs[1].token_ids
    assert outputs[0].usage.jumped_tokens == 0


STORY = {"temperature": 1.0, "max_tokens": 400, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True])
def test_forks_inside_a_generation_go_on_from_what_is_written(fresh: ph.Engine, stream: bool) -> None:
    """The parent writes 400 tokens; each fork takes over what there is of them, and computes what is its own only."""
    computed = fresh.statistics().num_computed_tokens

    @ph.function
    def tell(s: ProgramState) -> None:
        s += ph.user("Tell a story.") + ph.assistant_begin() + ph.gen("story", seed=5)
        forks = s.fork(3, inside="story")
        forks += "|" + ph.gen("end", max_tokens=4, seed=1)
        s["stories"] = [fork["story"] for fork in forks]
        s["infos"] = [fork.get_meta_info("story") for fork in forks]
        s["texts"] = [fork.text() for fork in forks]
        s += ph.assistant_end()

    state = tell.run(backend=fresh, stream=stream, **STORY)
    stories = [state["story"], *state["stories"]]
    assert len(set(stories)) == 4
    for fork, text in zip(state["stories"], state["texts"], strict=True):
        assert f"{fork}|" in text
    computed = fresh.statistics().num_computed_tokens - computed
    infos = [state.get_meta_info("story"), *state["infos"]]
    assert all(info["forked_tokens"] + info["completion_tokens"] == 400 for info in infos)
    assert infos[0]["forked_tokens"] == 0
    own = sum(info["completion_tokens"] for info in infos)
    in_vain = sum(info["drafted_tokens"] - info["jumped_tokens"] for info in infos)
    # the prompt, what each wrote itself, and the short ends: a token, "|", and three of four
    assert computed <= infos[0]["prompt_tokens"] + own + in_vain + 3 * 6
    assert state["story"] == ph.function(ask_story).run(backend=fresh, **STORY)["story"]
    fresh.core.audit()


def ask_story(s: ProgramState) -> None:
    s += ph.user("Tell a story.") + ph.assistant_begin() + ph.gen("story", seed=5)


def test_forks_inside_a_constraint_are_valid(fresh: ph.Engine) -> None:
    @ph.function
    def make(s: ProgramState) -> None:
        s += ph.user("A code.") + ph.assistant_begin() + ph.gen("code", regex=r"[a-z]{60}-[0-9]{60}", max_tokens=200)
        forks = s.fork(4, inside="code")
        s["codes"] = [fork["code"] for fork in forks]

    state = make.run(backend=fresh, temperature=1.5, seed=3)
    assert len(set(state["codes"])) == 4
    for code in (state["code"], *state["codes"]):
        assert re.fullmatch(r"[a-z]{60}-[0-9]{60}", code)


@pytest.mark.parametrize(
    ("schema", "params"),
    [
        (Picky, {}),
        ({"type": "array", "items": {"type": "integer", "maximum": 9}, "minItems": 3}, {"stop": ","}),
    ],
    ids=["a validator refuses it", "a stop string cuts it"],
)
def test_text_that_is_no_value_is_not_lost(engine: ph.Engine, schema: Any, params: dict[str, Any]) -> None:
    """Nor are the other outputs of the call: the error is raised when the value is read."""
    sampling = ph.SamplingParams(max_tokens=40, temperature=1.0, seed=2, **params)
    completions = engine.generate(["Hello", "A town: "], sampling, ph.json_schema(schema, extra_keys="never"))
    assert [completion.finish_reason for completion in completions] == ["stop", "stop"]
    for completion in completions:
        assert completion.text
        with pytest.raises(RequestError, match="not the value"):
            _ = completion.parsed

    @ph.function
    def fill(s: ProgramState) -> None:
        s += "A town: " + ph.gen("x", json_schema=schema, max_tokens=40, n=2, **params)

    state = fill.run(backend=engine, seed=2)
    assert all(state["x"]) and state["x"][0] in state.text()
    with pytest.raises(RequestError, match="not the value"):
        state.parsed("x")
