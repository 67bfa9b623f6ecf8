"""`phloem chat` with a model that reasons, on channels or in tags: that is apart, and no part of the next turn."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from phloem.runtime.cache.reply_memory import Conversation as Prompt
from phloem.runtime.cli.chat import Conversation
from phloem.runtime.request import Delta, FinishReason, SamplingParams, Usage

REPLY = ["<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>"]
REPLY += ["<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Good ", "day."]
THOUGHT = ["<think>", "\n", "Hm", ".", "\n</thi", "nk>\n\n", "Good ", "day."]


class ScriptedEngine:
    """Gives every request the same answer. Special tokens are silent unless they are asked for."""

    def __init__(self, reply: list[str], special: list[str], template: str = "", prompt: str = "") -> None:
        self.tokenizer = SimpleNamespace(
            special_ids=dict.fromkeys(special, 3),
            chat_template=SimpleNamespace(source=template, is_default=False),
            show=lambda token_ids: prompt,
        )
        self.reply = reply
        self.asked: list[list[dict[str, str]]] = []

    def encode_chat(self, messages: Sequence[dict[str, str]], *, adapter: str | None) -> Prompt:
        self.asked.append(list(messages))
        return Prompt(array("i", [1]), "text", 0)

    def stream(self, prompt: Any, sampling: SamplingParams, **options: Any) -> Iterator[Delta]:
        silent = () if options["shows_special"] else ("<|", *self.tokenizer.special_ids)
        for index, text in enumerate(self.reply):
            reason = FinishReason.STOP if index == len(self.reply) - 1 else None
            yield Delta("1", 0, "" if text.startswith(silent) else text, (1,), reason, Usage())


ENGINES = {
    "harmony": ScriptedEngine(REPLY, ["<|channel|>"]),
    "tags": ScriptedEngine(THOUGHT, [], "… </think> …"),
    "tags that are special tokens": ScriptedEngine(THOUGHT, ["<think>"], "… </think> …"),
    "tags, the first one in the prompt": ScriptedEngine(THOUGHT[1:], [], "… </think> …", "<assistant><think>\n"),
}


@pytest.mark.parametrize("case", ENGINES)
def test_reasoning_goes_elsewhere(capsys: pytest.CaptureFixture[str], case: str) -> None:
    engine = ENGINES[case]
    Conversation(engine, SamplingParams(), None, stats=False).run(iter(["Hello", "And?"]))  # type: ignore[arg-type]
    shown = capsys.readouterr()
    assert shown.out == "Good day.\n" * 2
    assert "Hm." in shown.err.replace("\x1b[0m", "").replace("\x1b[2m", "")
    assert engine.asked[1][1] == {"role": "assistant", "content": "Good day."}


def test_what_others_write_is_shown_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    engine = ScriptedEngine(REPLY, [])
    Conversation(engine, SamplingParams(), None, stats=False).run(iter(["Hello"]))  # type: ignore[arg-type]
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("analysisHm.assistantfinalGood day.\n", "")
