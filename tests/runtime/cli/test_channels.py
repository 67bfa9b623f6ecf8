"""`phloem chat` with a model that answers on channels: its reasoning is apart, and no part of the next turn."""

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


class ScriptedEngine:
    """Says the same to everybody."""

    def __init__(self, special_ids: dict[str, int]) -> None:
        self.tokenizer = SimpleNamespace(special_ids=special_ids)
        self.asked: list[list[dict[str, str]]] = []

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> Prompt:
        self.asked.append(list(messages))
        return Prompt(array("i", [1]), "text", 0)

    def stream(self, prompt: Any, sampling: SamplingParams, **options: Any) -> Iterator[Delta]:
        is_silent = not options["shows_special"]
        for index, text in enumerate(REPLY):
            reason = FinishReason.STOP if index == len(REPLY) - 1 else None
            yield Delta("1", 0, "" if is_silent and text.startswith("<|") else text, (1,), reason, Usage())


@pytest.mark.parametrize("is_harmony", [True, False], ids=["harmony", "others"])
def test_reasoning_goes_elsewhere(capsys: pytest.CaptureFixture[str], is_harmony: bool) -> None:
    engine = ScriptedEngine({"<|channel|>": 3} if is_harmony else {})
    Conversation(engine, SamplingParams(), None, stats=False).run(iter(["Hello", "And?"]))  # type: ignore[arg-type]
    shown = capsys.readouterr()
    said = "Good day." if is_harmony else "analysisHm.assistantfinalGood day."
    assert shown.out == f"{said}\n" * 2
    assert ("Hm." in shown.err.replace("\x1b[0m", "").replace("\x1b[2m", "")) == is_harmony
    assert engine.asked[1][1] == {"role": "assistant", "content": said}
