"""Forks: they go on from the same ids, side by side, anywhere; and come together again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import phloem as ph
from phloem.errors import ProgramError
from phloem.runtime.program import ProgramState

from . import bodies
from .fakes import FakeBackend


def run(body: Callable[[ProgramState], Any], backend: FakeBackend | None = None, **options: Any) -> ProgramState:
    return bodies.run(body, backend or FakeBackend(reply=last_digit), **options)


def last_digit(prompt: str) -> str:
    return f"<{(re.findall(r'[0-9]', prompt) or ['-'])[-1]}>"


@pytest.mark.parametrize(
    "append",
    [
        lambda forks: [fork.__iadd__(f"{i}" + ph.gen("x")) for i, fork in enumerate(forks)],
        lambda forks: forks.__iadd__(lambda i: f"{i}" + ph.gen("x")),
        lambda forks: forks.__iadd__([f"{i}" + ph.gen("x") for i in range(3)]),
        lambda forks: forks.__iadd__(tuple(f"{i}" for i in range(3))).__iadd__(ph.gen("x")),
    ],
    ids=["loop", "function", "list", "same"],
)
def test_every_way_to_append_to_forks(append: Callable[[Any], Any]) -> None:
    def body(s: ProgramState) -> None:
        s += "shared "
        forks = s.fork(3)
        append(forks)
        forks.join()
        assert len(forks) == 3 and [fork["x"] for fork in forks] == ["<0>", "<1>", "<2>"]
        s += "after"

    state = run(body)
    assert state["x"] == ["<0>", "<1>", "<2>"]
    assert state.text() == "shared after"
    assert [info["finish_reason"]["type"] for info in state.get_meta_info("x")] == ["stop"] * 3


def test_forks_share_the_ids_of_their_parent() -> None:
    backend = FakeBackend()

    def body(s: ProgramState) -> None:
        s += "shared a"
        forks = s.fork(4)
        forks += "b" + ph.gen("x")  # `ab` is one token, but not across the fork
        forks.join()

    run(body, backend)
    prefix = backend.engine.tokenizer.encode_prompt("shared a")
    assert [asked.prompt for asked in backend.asked] == [[*prefix, ord("b")]] * 4


def test_index_assignment_appends() -> None:
    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks[0] += "zero"
        forks[1] += "one"
        assert [fork.text() for fork in forks] == ["zero", "one"]
        with pytest.raises(ProgramError, match="cannot be replaced"):
            forks[0] = s

    run(body)


@pytest.mark.parametrize("before", [lambda s: None, lambda s: s.user("1"), lambda s: s.user_begin()])
def test_fork_works_before_any_text_and_inside_roles(before: Callable[[ProgramState], None]) -> None:
    def body(s: ProgramState) -> None:
        before(s)
        forks = s.fork(2)
        forks += lambda i: f"{i + 5}" + ph.gen("x")
        forks.join()

    assert run(body)["x"] == ["<5>", "<6>"]


def test_forks_run_side_by_side() -> None:
    barrier = threading.Barrier(5)

    def reply(prompt: str) -> str:
        barrier.wait(timeout=120)
        return "together"

    def body(s: ProgramState) -> None:
        forks = s.fork(5)
        forks += "a" + ph.gen("x")
        forks.join()

    assert run(body, FakeBackend(reply=reply))["x"] == ["together"] * 5


def test_a_fork_copies_variables_and_messages_and_leaves_its_parent_alone() -> None:
    def body(s: ProgramState) -> None:
        s["seen"] = "before"
        s += ph.user("1") + ph.assistant(ph.gen("a"))
        fork = s.fork(1)[0]
        assert fork["seen"] == "before" and fork["a"] == "<1>" and fork.messages() == s.messages()
        fork["seen"] = "changed"
        fork += ph.user("2")
        assert s["seen"] == "before" and len(s.messages()) == 2 and len(fork.messages()) == 3

    run(body)


def test_join_gathers_only_new_variables_and_only_where_they_are_set() -> None:
    def body(s: ProgramState) -> None:
        s["old"] = 0
        forks = s.fork(3)
        for i, fork in enumerate(forks):
            fork["old"] = i
            if i != 1:
                fork["new"] = i
        forks.join()
        forks.join()

    state = run(body)
    assert state["old"] == 0 and state["new"] == [0, 2]


def test_join_can_append_the_text_as_the_ids_that_the_forks_had() -> None:
    backend = FakeBackend(reply=last_digit)

    def body(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(2)
        forks += lambda i: f"b{i}" + ph.gen("x")
        forks.join(mode="concate_and_append")
        s += "!" + ph.gen("y")
        assert "x" not in s

    state = run(body, backend)
    encode = backend.engine.tokenizer.encode
    pieces = [encode("b0"), encode("<0>"), encode("b1"), encode("<1>"), encode("!"), encode("<1>")]
    assert state.text() == "ab0<0>b1<1>!<1>"
    assert state.token_ids() == [256, *encode("a"), *(token_id for piece in pieces for token_id in piece)]


def test_appended_messages_are_the_parents() -> None:
    def body(s: ProgramState) -> None:
        s += ph.system("S")
        forks = s.fork(2)
        forks += lambda i: ph.user(f"{i}") + ph.assistant(ph.gen("x"))
        forks.join("concate_and_append")

    contents = [message["content"] for message in run(body).messages()]
    assert contents == ["S", "0", "<0>", "1", "<1>"]


def test_appending_inside_an_open_message() -> None:
    def body(s: ProgramState) -> None:
        s += ph.user("1")
        with s.assistant():
            forks = s.fork(2)
            forks += lambda i: f"{i}" + ph.gen("x")
            forks.join("concate_and_append")

    assert run(body).messages()[-1] == {"role": "assistant", "content": "0<0>1<1>"}


def test_forks_that_leave_a_message_open_are_not_appended() -> None:
    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += ph.user_begin() + "a"
        forks.join("concate_and_append")

    with pytest.raises(ProgramError, match="must leave roles as it found them"):
        run(body)


def test_blocks_join_at_their_end() -> None:
    def body(s: ProgramState) -> None:
        with s.fork(2) as forks:
            forks += lambda i: f"{i}" + ph.gen("x")
        with s.copy() as twin:
            twin += "7" + ph.gen("y")
        alone = s.copy()
        alone += "8" + ph.gen("z")
        assert alone["z"] == "<8>"
        assert "z" not in s

    state = run(body)
    assert state["x"] == ["<0>", "<1>"] and state["y"] == ["<7>"]


def failing_fork(s: ProgramState) -> None:
    forks = s.fork(3)
    forks += lambda i: ("REFUSE" if i == 1 else "fine") + ph.gen("x")
    forks.join()


def unjoined_failing_fork(s: ProgramState) -> None:
    forks = s.fork(3)
    forks += lambda i: ("REFUSE" if i == 1 else "fine") + ph.gen("x")


@pytest.mark.parametrize("body", [failing_fork, unjoined_failing_fork])
def test_a_failing_fork_fails_the_run(body: Callable[[ProgramState], None]) -> None:
    with pytest.raises(ProgramError, match=r"test_fork.py:\d+, gen\('x'\): refused on purpose"):
        run(body)


def test_a_failure_that_the_program_handles_is_handled() -> None:
    def body(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(2)
        forks += lambda i: ("REFUSE" if i else "5") + ph.gen("x")
        good = [fork["x"] for fork in forks if fork.error() is None]
        s["good"] = good

    assert run(body)["good"] == ["<5>"]


def test_the_run_waits_for_forks_that_are_not_joined() -> None:
    kept: list[ProgramState] = []

    def body(s: ProgramState) -> None:
        kept.extend(s.fork(2))
        for fork in kept:
            fork += "3" + ph.gen("x")

    run(body)
    assert [fork["x"] for fork in kept] == ["<3>", "<3>"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda s: s.fork(2).__iadd__(["a"]), "1 expressions for 2 forks"),
        (lambda s: s.fork(2).join("sideways"), 'is not "gather_variable"'),
        (lambda s: s.__enter__(), "only a copy"),
    ],
)
def test_mistakes_with_forks_raise(body: Callable[[ProgramState], None], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        run(body)


def test_hundreds_of_forks_leave_no_thread_behind() -> None:
    before = threading.active_count()

    def body(s: ProgramState) -> None:
        forks = s.fork(200)
        forks += lambda i: f"{i % 10}" + ph.gen("x")
        forks.join()

    state = run(body)
    assert state["x"] == [f"<{i % 10}>" for i in range(200)]
    assert threading.active_count() <= before + 200  # workers end by themselves …
    for thread in threading.enumerate():
        if thread.name == "phloem-program":
            thread.join(timeout=120)
    assert threading.active_count() <= before  # … and soon


def paced(reply: str = "slow answer") -> FakeBackend:
    backend = FakeBackend(reply=reply)
    backend.pace = threading.Semaphore(0)
    return backend


def test_a_fork_inside_a_generation_has_its_own_end_of_it_and_not_what_follows() -> None:
    backend = paced()

    def body(s: ProgramState) -> None:
        s += ph.user("Q") + ph.assistant_begin() + ph.gen("x") + "!" + ph.gen("y")
        forks = s.fork(2, inside="x")
        backend.pace.release(1000)  # type: ignore[union-attr]
        assert [fork["x"] for fork in forks] == ["slow answer/0", "slow answer/1"]
        assert all("y" not in fork for fork in forks)
        forks += ph.gen("z")
        assert [fork["z"] for fork in forks] == ["slow answer"] * 2
        assert [fork.text().partition("<|assistant|>")[2] for fork in forks] == [
            "slow answer/0slow answer",
            "slow answer/1slow answer",
        ]
        forks.join()

    state = run(body, backend)
    assert state["x"] == state["y"] == "slow answer"
    assert state["z"] == ["slow answer"] * 2


def test_a_fork_inside_a_generation_that_has_ended_has_what_was_written() -> None:
    def body(s: ProgramState) -> None:
        s += ph.user("Q") + ph.assistant_begin() + ph.gen("x")
        s.sync()
        forks = s.fork(2, inside="x")
        assert [fork["x"] for fork in forks] == ["ok", "ok"]
        assert forks[0].text() == s.text()

    run(body, FakeBackend(reply="ok"))


def test_the_text_of_forks_inside_can_be_followed_and_appended() -> None:
    backend = paced("ab")

    def body(s: ProgramState) -> None:
        s += ph.user("Q") + ph.assistant_begin() + ph.gen("x")
        forks = s.fork(2, inside="x")
        backend.pace.release(1000)  # type: ignore[union-attr]
        assert ["".join(fork.text_iter("x")) for fork in forks] == ["ab/0", "ab/1"]
        forks.join("concate_and_append")
        assert s.text().endswith("abab/0ab/1")

    run(body, backend, stream=True)


def test_forking_inside_nothing_is_a_mistake() -> None:
    def body(s: ProgramState) -> None:
        s += "text"
        with pytest.raises(KeyError, match="no variable 'x'"):
            s.fork(2, inside="x")

    run(body)


def test_a_cancelled_run_ends_the_forks_inside_its_generations() -> None:
    backend = paced()

    def body(s: ProgramState) -> None:
        s += ph.user("Q") + ph.assistant_begin() + ph.gen("x")
        s.fork(2, inside="x")
        raise ValueError("no more of this")

    with pytest.raises(ValueError, match="no more of this"):
        run(body, backend)
    assert len(backend.streams) == 3 and all(stream.aborted.is_set() for stream in backend.streams)


def test_forks_of_a_seeded_run_have_seeds_of_their_own() -> None:
    """The same in every run; or `fork` could not take samples of one answer. A seed that `gen` names stays as it is."""

    def body(s: ProgramState) -> None:
        s += "shared " + ph.gen("root")
        forks = s.fork(2)
        forks += ph.gen("x", temperature=0.9)
        with s.copy() as twin:
            twin += ph.gen("y")
        forks[1] += ph.gen("named", seed=5)
        deeper = forks[1].fork(2)
        deeper += ph.gen("z")
        for state in (*forks, twin, *deeper):
            state.sync()

    def seeds(**options: Any) -> list[int | None]:
        backend = FakeBackend()
        run(body, backend, **options)
        return [asked.sampling.seed for asked in backend.asked]

    first, second = (set(seeds(seed=3)) for _ in range(2))
    assert first == second and len(first) == 7 and {3, 5} <= first
    assert set(seeds()) == {None, 5}
