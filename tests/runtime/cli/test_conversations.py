"""Conversations against plain lists: what the engine is sent, what stays of answers that are cut or fail, files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.errors import ConfigError, RequestError
from phloem.runtime.cli.chat import files
from phloem.runtime.cli.chat.commands import take
from phloem.runtime.cli.chat.conversation import Conversation, Message, Piece
from phloem.runtime.cli.chat.plain_transcript import PlainTranscript
from phloem.runtime.cli.chat.session import Session
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from .scripted import ScriptedEngine, plain_session

REPLY = ["It ", "is ", "so."]
TURNS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 9)),
        st.tuples(st.just("cut"), st.integers(0, 2)),
        st.tuples(st.just("fail"), st.integers(0, 2)),
        st.tuples(st.just("retry"), st.just(0)),
        st.tuples(st.just("edit"), st.integers(1, 4)),
        st.tuples(st.just("reset"), st.just(0)),
        st.tuples(st.just("file"), st.just(0)),
    ),
    max_size=12,
)


def _said(text: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


def _interrupt(after: int) -> None:
    """What the engine calls before each piece: Ctrl-C at this one."""
    raise KeyboardInterrupt


@given(TURNS)
def test_the_engine_gets_the_messages_of_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[str, int]]
) -> None:
    engine = ScriptedEngine(REPLY)
    session = plain_session(engine)
    oracle: list[Message] = []
    file = tmp_path_factory.getbasetemp() / "conversation.json"
    for number, (turn, value) in enumerate(turns):
        text = f"message {number}"
        engine.fails_after, engine.at = None, lambda index: None
        questions = [at for at, message in enumerate(oracle) if message["role"] == "user"]
        sent = len(engine.asked)
        if turn in ("ask", "cut", "fail"):
            if turn == "cut":
                engine.at = lambda index, stop=value: _interrupt(index) if index == stop else None  # type: ignore[misc]
            engine.fails_after = value if turn == "fail" else None
            take(session, text)
            assert engine.asked[sent:] == [[*oracle, {"role": "user", "content": text}]]
            answer = "".join(REPLY if turn == "ask" else REPLY[:value])
            if turn == "ask" or (turn == "cut" and value):
                oracle += _said(text, answer)
            else:
                assert session.draft == text  # nothing that was typed is lost
        elif turn == "retry" and questions:
            take(session, "/retry")
            assert engine.asked[sent:] == [oracle[: questions[-1] + 1]]
            oracle = oracle[: questions[-1]] + _said(oracle[questions[-1]]["content"], "".join(REPLY))
        elif turn == "edit" and value <= len(questions):
            take(session, f"/edit {value}")
            assert session.draft == oracle[questions[value - 1]]["content"]
            take(session, text)
            oracle = oracle[: questions[value - 1]]
            assert engine.asked[sent:] == [[*oracle, {"role": "user", "content": text}]]
            oracle += _said(text, "".join(REPLY))
        elif turn == "reset":
            take(session, "/reset")
            oracle = []
        elif turn == "file" and oracle:
            file.unlink(missing_ok=True)
            take(session, f"/save {file}")
            take(session, "/reset")
            take(session, f"/load {file}")
        assert session.conversation.messages == oracle


def test_a_saved_conversation_is_the_same_when_loaded(tmp_path: Path) -> None:
    session = plain_session(ScriptedEngine(REPLY))
    take(session, "/system Be brief, “please”.\n")
    take(session, "Grüße\n\n\ta \\ b \u2028 c")
    before = session.conversation.with_system(session.conversation.messages)
    take(session, f"/save {tmp_path / 'a.json'}")
    data = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert data == {"model": "scripted", "messages": before}
    take(session, f"/save {tmp_path / 'a.json'}")  # a conversation may be overwritten
    take(session, "/system")
    take(session, f"/load {tmp_path / 'a.json'}")
    assert session.conversation.with_system(session.conversation.messages) == before
    (tmp_path / "list.json").write_text(json.dumps([*before, {"role": "user", "content": "And?"}]))
    take(session, f"/load {tmp_path / 'list.json'}")
    assert session.draft == "And?" and session.conversation.with_system(session.conversation.messages) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "no conversation; expected"),
        ("[]", "no conversation; expected"),
        ("[3]", "messages[0]: expected"),
        ('[{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]', "messages[1].role: 'tool'"),
        ('[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]', "must be the first"),
        ('{"messages": [{"role": "user", "content": [1]}]}', "messages[0].content: expected a text"),
        ('{"messages": [{"role": "user"}]}', "messages[0].content: expected a text"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^/load {re.escape(str(file))}") as raised:
        files.load(str(file))
    assert words in str(raised.value)
    with pytest.raises(ConfigError, match="it is there, and no conversation"):
        files.save(str(file), "nano", [{"role": "user", "content": "a"}])
    assert file.read_text() == text


def test_what_begins_anew_forgets_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = plain_session(ScriptedEngine(REPLY))
    (tmp_path / "a.json").write_text(json.dumps(_said("Hello", "Good day.")))
    for line in ("/reset", "/system", "/system Be brief.", f"/load {tmp_path / 'a.json'}"):
        for message in ("one", "two"):
            take(session, message)
        take(session, "/edit 1")
        session.draft = ""
        capsys.readouterr()
        take(session, line)
        assert len(capsys.readouterr().err.splitlines()) == (3 if line.startswith("/load") else 1)
        assert session.num_kept is None and session.conversation.last is None
        assert session.conversation.system == ("Be brief." if line == "/system Be brief." else None)
        take(session, "/explain")
        assert "no answer yet" in capsys.readouterr().err
    take(session, "/edit")
    take(session, "/retry")
    assert session.draft == "" and session.num_kept is None


def test_an_empty_answer_is_an_answer() -> None:
    session = plain_session(ScriptedEngine([""]))
    take(session, "Hello")
    assert session.conversation.messages == _said("Hello", "")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"/load .*pipe: not a file"):
        files.load(str(tmp_path / "pipe"))


@pytest.mark.parametrize("path", ["", "nowhere/a.json", "a\0b", "-", "a\nb", "."])
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="/load"):
        files.load(path)
    if path not in ("-", "a\nb"):
        with pytest.raises(ConfigError, match="/save"):
            files.save(path, "nano", [{"role": "user", "content": "a"}])


def test_commands_that_cannot_be_done_say_so_and_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    session = plain_session(ScriptedEngine(REPLY))
    for line in ("/retry", "/edit", "/explain", "/save", "/load", "/save x.json", "/what", "/exit now"):
        take(session, line)
        assert capsys.readouterr().err.startswith(f"error: {line.split()[0]}"), line
    take(session, "Hello")
    for line in ("/edit 0", "/edit 2", "/edit x", "/edit ٣", f"/edit {'9' * 5000}"):
        take(session, line)
        assert "give the number of a message, 1 to 1" in capsys.readouterr().err
    assert session.num_kept is None and session.draft == "" and not session.has_ended


def test_a_fork_computes_nothing_again_and_a_constraint_holds(
    tmp_path: Path, schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Engine("nano", num_blocks=256) as engine:
        conversation = Conversation(engine, SamplingParams(max_tokens=40))
        session = Session(conversation, PlainTranscript(), "nano", stats=True)
        for line in ("Hello", "Who are you?", "/retry", "/edit 2"):
            take(session, line)
        answered = conversation.messages
        take(session, session.draft)
        assert conversation.messages == answered
        assert conversation.last is not None
        usage = conversation.last.usage
        assert usage.cached_tokens == usage.prompt_tokens - 1  # the last one is computed for what follows it
        capsys.readouterr()
        take(session, "/explain")
        err = capsys.readouterr().err
        assert f"{usage.cached_tokens} cached, 1 computed" in err and "All of the prompt was cached" in err
        assert f"{usage.jumped_tokens} jumped" in err and answered[-1]["content"] in re.sub("[‹›]", "", err)
        take(session, "/tree")
        assert "blocks of 16 tokens are in use\ndefault namespace" in capsys.readouterr().err
        take(session, "/regex [0-9]{3}")
        take(session, "How many?")
        assert re.fullmatch("[0-9]{3}", conversation.messages[-1]["content"])
        take(session, f"/schema {schema}")
        take(session, "Ada is 36.")
        assert set(json.loads(conversation.messages[-1]["content"])) == {"name", "age"}
        capsys.readouterr()
        held = conversation.constraint
        for line, words in (
            ("/regex [", "error: /regex: "),
            ('/schema {"type": "bogus"}', "error: /schema: /type: "),
            (f"/schema {tmp_path}/none.json", f"error: /schema {tmp_path}/none.json: no such file"),
        ):
            take(session, line)
            assert words in capsys.readouterr().err and conversation.constraint is held
        take(session, "/schema")
        assert conversation.constraint is None


class Interrupted(PlainTranscript):
    """The user presses Ctrl-C while the answer is shown."""

    def answer(self, pieces: Iterator[Piece], *, is_literal: bool) -> bool:
        next(pieces)
        return False


def test_an_answer_that_is_left_is_cut_there() -> None:
    engine = ScriptedEngine(REPLY)
    session = plain_session(engine, Interrupted())
    take(session, "Hello")
    assert session.conversation.messages == _said("Hello", "It ")
    assert session.conversation.last is not None and session.conversation.last.is_cut


def test_a_refused_message_raises_and_changes_nothing() -> None:
    with Engine("nano", num_blocks=64) as engine:
        conversation = Conversation(engine, SamplingParams(max_tokens=8))
        with pytest.raises(RequestError):
            list(conversation.ask("word " * 9000))
        assert conversation.messages == [] and conversation.last is None
