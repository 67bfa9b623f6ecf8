"""Which format of outputs a model has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..settings import ReasoningFormat
from .call_formats import CALL_FORMATS, call_format_of
from .harmony import HarmonyFormat, speaks_harmony
from .output_format import OutputFormat
from .tagged import TaggedFormat
from .thoughts import thinks

if TYPE_CHECKING:
    from ...tokenizer.tokenizer import Tokenizer


def output_format_of(tokenizer: Tokenizer, calls: str, reasoning: ReasoningFormat) -> OutputFormat:
    """The format of a model; calls, reasoning: what the server's settings say of it."""
    special_texts = tokenizer.special_ids
    if speaks_harmony(special_texts):
        return HarmonyFormat(special_texts)
    if calls in CALL_FORMATS:
        found = CALL_FORMATS[calls].with_special(special_texts)
    else:
        found = call_format_of(tokenizer.chat_template.source, special_texts) if calls == "auto" else None
    return TaggedFormat(tokenizer, found, thinks=tokenizer.has_text and thinks(tokenizer, reasoning))
