"""What a format of outputs has to say of itself: which constraint holds in it, and how its outputs are read.

A format is one class with this interface in one module, and a case of `output_format_of` (`table`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ...constrain.spec import ConstraintSpec
from ..protocol import ChatRequest
from .events import NewReader, OutputReader

Thought = Literal["unsaid", "open", "closed"]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How an output with calls is constrained and read, where no thought comes before it.

    Attributes:
        new_reader: makes a reader for one output.
        is_forced: whether there is certainly a call.
        is_named: the caller chose the tool, and then OpenAI's finish reason is "stop".
        is_free: the output is any text with calls in it.
    """

    spec: ConstraintSpec
    new_reader: NewReader
    is_forced: bool
    is_named: bool
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How the outputs of one request are constrained and read, from where its prompt ends.

    Attributes:
        new_reader: makes a reader for one output.
        thought: what the prompt says of a thought in tags; None: there is none to be looked for.
        counts_thoughts: whether tokens of reasoning are counted.
        has_marks: whether special tokens mark the parts of an output, and must be shown to its reader.
    """

    spec: ConstraintSpec | None
    new_reader: NewReader = OutputReader
    thought: Thought | None = None
    counts_thoughts: bool = False
    has_marks: bool = False


class OutputFormat(Protocol):
    """How a model writes thoughts, content and calls."""

    def plan(self, body: ChatRequest, answer: ConstraintSpec | None) -> CallPlan | None:
        """How calls are written; None if there are none in the output. `answer`: what the content obeys where it is
        not calls (`response_format`); then there are calls or content, never both."""

    def reading(
        self, body: ChatRequest, spec: ConstraintSpec | None, plan: CallPlan | None, prompt_ids: Sequence[int]
    ) -> Reading:
        """The whole of it. spec: what was asked for, the plan's if there is one; not a caller's structural tag."""
