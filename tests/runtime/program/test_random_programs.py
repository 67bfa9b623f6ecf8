"""Random programs with nested forks say what a reader with pencil and paper would write down, thread or no thread."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.runtime.program import ProgramState

from .fakes import FakeBackend

NAMES = st.sampled_from(["x", "y", "z"])
STEPS = st.recursive(
    st.lists(
        st.one_of(
            st.tuples(st.just("text"), st.sampled_from(["a", "the ", "é", "ab", "."])),
            st.tuples(st.just("gen"), NAMES),
            st.tuples(st.just("set"), NAMES),
            st.tuples(st.just("scope"), NAMES),
        ),
        max_size=4,
    ),
    lambda inner: st.lists(
        st.one_of(
            st.tuples(st.just("text"), st.sampled_from(["b", "c"])),
            st.tuples(st.just("gen"), NAMES),
            st.tuples(st.sampled_from(["gather", "append"]), st.integers(1, 3), inner),
        ),
        max_size=4,
    ),
    max_leaves=12,
)


def reply(prompt: str) -> str:
    digest = hashlib.blake2b(prompt.encode(), digest_size=3).hexdigest()
    return f"<{digest}>"


def perform(s: ProgramState, steps: list[Any]) -> None:
    """Runs the steps as a program."""
    for step in steps:
        match step:
            case ("text", text):
                s += text
            case ("gen", name):
                s += ph.gen(name)
            case ("set", name):
                s[name] = "set"
            case ("scope", name):
                with s.var_scope(name):
                    s += "in " + ph.gen() + "."
            case (kind, size, inner):
                forks = s.fork(size)
                for index, fork in enumerate(forks):
                    fork += f"{index}"
                    perform(fork, inner)
                forks.join("gather_variable" if kind == "gather" else "concate_and_append")


def expect(text: str, variables: dict[str, Any], steps: list[Any]) -> tuple[str, dict[str, Any]]:
    """The same by hand: text and variables after the steps."""
    variables = dict(variables)
    for step in steps:
        match step:
            case ("text", more):
                text += more
            case ("gen", name):
                variables[name] = reply("<s>" + text)
                text += variables[name]
            case ("set", name):
                variables[name] = "set"
            case ("scope", name):
                variables[name] = "in " + reply(f"<s>{text}in ") + "."
                text += variables[name]
            case (kind, size, inner):
                ends = [expect(f"{text}{index}", variables, inner) for index in range(size)]
                if kind == "append":
                    text += "".join(end[len(text) :] for end, _ in ends)
                    continue
                found = {name for _, child in ends for name in child} - variables.keys()
                for name in found:
                    variables[name] = [child[name] for _, child in ends if name in child]
    return text, variables


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_a_random_program_says_what_it_should(steps: list[Any]) -> None:
    state = ph.function(lambda s: perform(s, steps)).run(backend=FakeBackend(reply=reply))
    text, variables = expect("", {}, steps)
    assert state.text() == text
    assert {name: state[name] for name in variables} == variables
    streamed = ph.function(lambda s: perform(s, steps)).run(backend=FakeBackend(reply=reply), stream=True)
    assert "".join(streamed.text_iter()) == text
