"""The terminal: keys, completion, history, how answers are rendered while they come, and one real pseudo-terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from phloem.runtime.cli.chat import input_line
from phloem.runtime.cli.chat.commands import COMMANDS, take, talk
from phloem.runtime.cli.chat.input_line import InputLine, LineCompleter, history_file, history_in
from phloem.runtime.cli.chat.markdown import blocks, finished_blocks
from phloem.runtime.cli.chat.transcript import LITERAL, MARKDOWN, GrowingText, Transcript
from phloem.runtime.cli.terminal import visible
from phloem.runtime.server.formats.events import Content, Reasoning

from .scripted import ScriptedEngine, plain_session

ENTER, ALT_ENTER, CTRL_C, CTRL_D = "\r", "\x1b\r", "\x03", "\x04"
REPLY = ["It ", "is ", "so."]


def typed(keys: str, history: Path, engine: ScriptedEngine | None = None) -> list[str]:
    """What the user has sent of these keys, as the engine got it."""
    engine = engine or ScriptedEngine(REPLY)
    session = plain_session(engine)
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys + CTRL_D)
        talk(session, InputLine(session, history, keyboard, DummyOutput()).lines())
    return [messages[-1]["content"] for messages in engine.asked]


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        (f"Hello{ENTER}", ["Hello"]),
        (f"a{ALT_ENTER}b{ENTER}", ["a\nb"]),
        (f"a\\{ENTER}b{ENTER}", ["a\nb"]),
        (f"\x1b[200~a\r\nb\n\n/exit\n\x1b[201~{ENTER}", ["a\nb\n\n/exit"]),  # a paste is one message
        (f"\x1b[200~/x\x1b[201~\x1b[1~ {ENTER}", ["/x"]),  # a space before it makes it a message
        (f"wrong{CTRL_C}right{ENTER}", ["right"]),
        (f"a{ENTER}/edit{ENTER}b{ENTER}", ["a", "ab"]),
        (f"{ENTER}  {ENTER}a{ENTER}/exit{ENTER}b{ENTER}", ["a"]),
    ],
)
def test_keys(keys: str, sent: list[str], tmp_path: Path) -> None:
    assert typed(keys, tmp_path / "history") == sent


def test_what_was_not_answered_is_in_the_line_again(tmp_path: Path) -> None:
    engine = ScriptedEngine(REPLY)
    engine.fails_after = 1
    assert typed(f"Hello{ENTER}, you{ENTER}{CTRL_C}", tmp_path / "history", engine) == ["Hello", "Hello, you"]


def test_the_history_stays_and_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = history_file()
    assert file == tmp_path / "phloem" / "chat_history"
    monkeypatch.setattr(input_line, "MAX_KEPT_CHARS", 9)
    long = "0123456789"
    assert typed(f"a{ALT_ENTER}b{ENTER}{long}{ENTER}{long[:9]}{ENTER}", file) == ["a\nb", long, long[:9]]
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
    assert list(history_in(file).load_history_strings()) == [long[:9], "a\nb"]
    (tmp_path / "file").write_text("")
    assert isinstance(history_in(tmp_path / "file" / "history"), InMemoryHistory)
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert history_file() == tmp_path / ".local" / "state" / "phloem" / "chat_history"


def test_commands_files_and_numbers_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "person.json").write_text("{}")
    session = plain_session(ScriptedEngine(REPLY))
    take(session, "Hello")
    completer = LineCompleter(session)

    def completed(text: str) -> list[str]:
        found = completer.get_completions(Document(text), CompleteEvent())
        return [text[: len(text) + one.start_position] + one.text for one in found]

    assert [one.strip() for one in completed("/")] == list(COMMANDS)
    assert completed("/sa") == ["/save "] and completed("/ex") == ["/explain", "/exit"]
    assert completed("/schema per") == ["/schema person.json"] and completed("/regex per") == []
    assert completed("/edit ") == ["/edit 1"] and completed("/edit 2") == []
    assert completed("Hello /s") == [] and completed("/s\n/s") == []


def test_the_help_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    take(plain_session(ScriptedEngine(REPLY)), "/help")
    shown = capsys.readouterr().err
    assert all(len(line) <= 80 for line in shown.splitlines()) and all(name in shown for name in COMMANDS)
    documented = (Path(__file__).resolve().parents[3] / "docs" / "terminal.md").read_text(encoding="utf-8")
    assert all(re.search(rf"^\| .*`{name}[ `]", documented, re.MULTILINE) for name in COMMANDS)


# -- rendering -----------------------------------------------------------------------------------------------------

BLOCKS = [
    "A *word* and\nanother.",
    "# Title",
    "- a\n- b\n\n  c",
    "```python\nx = 1\n\ny = 2\n```",
    "> said",
    "1. a\n2. b",
]
BLOCKS += ["| a | b |\n|---|---|\n| 1 | 2 |", "Title\n---", "***"]


def rendered(pieces: list[str], *, literal: bool = False, width: int = 60) -> str:
    """What stays on the screen of an answer that comes in pieces; frames of its last block are not in it."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=20, color_system=None)
    with GrowingText(console, LITERAL if literal else MARKDOWN) as growing:
        for piece in pieces:
            growing._due_at = 0.0  # every piece is a frame
            growing.push(piece)
    return out.getvalue()


@settings(max_examples=30)
@given(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4), st.data())
def test_markdown_looks_the_same_in_pieces_as_block_by_block(blocks: list[str], data: st.DataObject) -> None:
    text = "\n\n".join(blocks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    at_once = rendered([text])
    assert rendered(pieces) == at_once
    for word in re.findall(r"\w+", re.sub(r"python|[*#`]", "", text)):
        assert word in at_once


@given(st.text(st.sampled_from("ab\n#*- `|1."), max_size=40), st.text(st.sampled_from("ab\n#*- `|1."), max_size=20))
def test_finished_blocks_do_not_change(text: str, more: str) -> None:
    assert "".join(blocks(text)) == text
    finished = finished_blocks(text)
    assert text.startswith("".join(finished)) and finished_blocks(text + more)[: len(finished)] == finished
    assert blocks(text + more)[: len(finished)] == finished


def test_literal_text_is_shown_as_it_stands() -> None:
    text = '{"a": "*b*",\n\n  "c": "`d`"}\n'
    assert rendered(list(text), literal=True) == text
    assert "*b*" not in rendered(["*b*"])
    assert rendered(["\n\n", " \n"]) == "", "nothing is there"


def test_controls_of_a_model_are_shown_and_not_obeyed() -> None:
    assert visible("a\x1b[2Jb\x07\r\x9b\n\tc\x7f") == "a␛[2Jb␇␍\ufffd\n\tc␡"
    for literal in (False, True):
        assert "\x1b" not in rendered(["a\x1b[2J", "\x1b]0;title\x07b"], literal=literal)


def test_reasoning_is_apart_and_a_cut_answer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    transcript = Transcript(Console(file=out, width=60, color_system=None))
    assert transcript.answer(
        iter([Reasoning("Hm"), Reasoning("."), Content("Good "), Content("day.")]), is_literal=False
    )
    assert out.getvalue() == "\nHm.\n\nGood day.\n"

    def cut() -> Iterator[Content]:
        yield Content("Good ")
        raise KeyboardInterrupt

    out.truncate(0), out.seek(0)
    assert not transcript.answer(cut(), is_literal=False)
    assert out.getvalue() == "\nGood\n"
    out.truncate(0), out.seek(0)
    transcript.runs([("a", False), ("b\x1b", True)])
    assert out.getvalue() == "ab␛\nunderlined: jumped over\n"


# -- a pseudo-terminal ---------------------------------------------------------------------------------------------


class Terminal:
    """A command on a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._keyboard, end = pty.openpty()
        command = [sys.executable, "-c", "from phloem.runtime.cli import main; main()", *arguments]
        set_in = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, env={**set_in, **environment}, start_new_session=True
        )
        os.close(end)
        self.screen = ""

    def wait_for(self, text: str) -> str:
        """Everything that was written up to `text`, which must come; what follows it is for the next call."""
        end = time.monotonic() + 60
        while text not in self.screen:
            assert time.monotonic() < end and select.select([self._keyboard], [], [], 60)[0], self.screen
            try:
                self.screen += os.read(self._keyboard, 1 << 16).decode(errors="replace")
            except OSError:  # the other end is closed
                raise AssertionError(self.screen) from None
        found, _, self.screen = self.screen.partition(text)
        return found + text

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        os.close(self._keyboard)


def test_a_conversation_on_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal("chat", "--num-blocks", "64", XDG_STATE_HOME=str(tmp_path), NO_COLOR="1")
    try:
        terminal.wait_for("/help says what can be done")
        terminal.wait_for("1> ")
        terminal.type("Helx\x7flo\r")
        terminal.wait_for("Hello! How can I help you?")
        terminal.wait_for("tokens/s")
        shown = terminal.wait_for("2> ")
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)  # no colours where they are not wanted
        terminal.type("/regex a{9}\r")
        terminal.wait_for("from now on answers match")
        terminal.wait_for("2> ")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D or /exit leaves")
        terminal.type("/exit\r")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
    assert "+Hello" in (tmp_path / "phloem" / "chat_history").read_text()
