"""`phloem chat` with a model that reasons, on channels or in tags: that is apart, and no part of the next turn."""

from __future__ import annotations

import pytest

from phloem.runtime.cli.chat.commands import talk

from .scripted import ScriptedEngine, plain_session

REPLY = ["<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>"]
REPLY += ["<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Good ", "day."]
THOUGHT = ["<think>", "\n", "Hm", ".", "\n</thi", "nk>\n\n", "Good ", "day."]


ENGINES = {
    "harmony": ScriptedEngine(REPLY, ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"]),
    "tags": ScriptedEngine(THOUGHT, [], "… </think> …"),
    "tags that are special tokens": ScriptedEngine(THOUGHT, ["<think>"], "… </think> …"),
    "tags, the first one in the prompt": ScriptedEngine(THOUGHT[1:], [], "… </think> …", "<assistant><think>\n"),
}


@pytest.mark.parametrize("case", ENGINES)
def test_reasoning_goes_elsewhere(capsys: pytest.CaptureFixture[str], case: str) -> None:
    engine = ENGINES[case]
    talk(plain_session(engine), iter(["Hello", "And?"]))
    shown = capsys.readouterr()
    assert shown.out == "Good day.\n" * 2
    assert "Hm." in shown.err
    assert engine.asked[1][1] == {"role": "assistant", "content": "Good day."}


def test_what_others_write_is_shown_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine(REPLY, [])
    talk(plain_session(engine), iter(["Hello"]))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("analysisHm.assistantfinalGood day.\n", "")
