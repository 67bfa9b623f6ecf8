"""The format of most models: a thought in tags, if the model thinks, then text with calls in tags of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...constrain.spec import ConstraintSpec
from ..protocol import ChatRequest
from .call_formats import CallFormat
from .call_plan import call_plan
from .events import OutputReader
from .output_format import CallPlan, Reading, Thought
from .thoughts import (
    BEGIN,
    END,
    ThoughtReader,
    after_thought,
    has_fixed_gap,
    is_inside_thought,
    tags_after_thought,
    thought_at_end,
)

if TYPE_CHECKING:
    from ...tokenizer.tokenizer import Tokenizer


class TaggedFormat:
    """An `OutputFormat`.

    Args:
        calls: how calls are written; None: the model has no way of its own.
        thinks: whether answers begin with a thought (see `thoughts`).
    """

    def __init__(self, tokenizer: Tokenizer, calls: CallFormat | None, *, thinks: bool) -> None:
        self._tokenizer = tokenizer
        self._calls = calls
        self._thinks = thinks

    def plan(self, body: ChatRequest, answer: ConstraintSpec | None) -> CallPlan | None:
        return call_plan(body, self._calls, answer)

    def reading(
        self, body: ChatRequest, spec: ConstraintSpec | None, plan: CallPlan | None, prompt_ids: Sequence[int]
    ) -> Reading:
        new_answer = plan.new_reader if plan is not None else OutputReader
        thought = self._thought(body, plan, prompt_ids) if self._thinks else None
        if thought is None:
            return Reading(spec, new_answer)
        is_free = spec is None or (plan is not None and plan.is_free)
        special_texts = self._tokenizer.special_ids
        if thought == "closed" and not is_free:
            return Reading(spec, new_answer, thought, counts_thoughts=True)
        has_gap = not is_free and spec is not None and has_fixed_gap(spec)
        if spec is not None and thought != "closed":
            constrain = tags_after_thought if is_free else after_thought
            spec = constrain(spec, thought, special_texts)
        return Reading(
            spec,
            lambda: ThoughtReader(thought, new_answer(), has_gap=has_gap),
            thought,
            counts_thoughts=True,
            has_marks=BEGIN in special_texts or END in special_texts,
        )

    def _thought(self, body: ChatRequest, plan: CallPlan | None, prompt_ids: Sequence[int]) -> Thought | None:
        """What the prompt says about the answer's thought; None if there is none to be separated from an answer.

        A call that is required stands after a thought only if the prompt has opened one.
        """
        if body.continue_final_message and body.messages:
            return "open" if is_inside_thought(body.messages[-1].content or "") else None
        thought = thought_at_end(self._tokenizer, prompt_ids)
        return None if thought == "unsaid" and plan is not None and plan.is_forced else thought
