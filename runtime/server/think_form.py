"""What an answer with a thought in tags may look like, as a structural tag: the thought is free, the rest as asked.

::

    thought </think> gap constraint                  the prompt has opened the thought
    ( ⏎? <think> thought </think> gap )? constraint  the model opens it, or does not think

The gap is up to two line breaks, as the model likes (Qwen writes two, GLM and SmolLM3 one), where the constraint cannot
begin with a line break itself; elsewhere it is two, so that a reader knows what of them obeys the constraint.

Near the end of the budget the thought is closed while there is still room for the rest. Marks that are special tokens
are written as those tokens; others are written as text, for which a model may use a token of its own just as well.
"""

from __future__ import annotations

from collections.abc import Collection

from ..constrain import spec as constraint_spec
from ..constrain.spec import ConstraintSpec
from .forms import Form, either, form_of, sequence, text, token
from .think import BEGIN, END, GAP, Thought


def has_fixed_gap(spec: ConstraintSpec) -> bool:
    """Whether exactly `GAP` stands between a thought and this constraint. JSON never begins with it."""
    return spec.kind not in ("json_schema", "json_object")


def after_thought(spec: ConstraintSpec, thought: Thought, special_texts: Collection[str]) -> ConstraintSpec:
    """The constraint on what comes after the thought.

    Where the model may leave its thought out, a constraint that allows a text beginning with `<think>` is ambiguous.
    """
    gap = text(GAP) if has_fixed_gap(spec) else {"type": "regex", "pattern": "\\n{0,2}"}
    before = sequence(_thought(thought, special_texts), gap)
    if thought == "unsaid":
        before = {"type": "optional", "content": before}
    return _tag(sequence(before, form_of(spec)), spec)


def tags_after_thought(spec: ConstraintSpec, thought: Thought, special_texts: Collection[str]) -> ConstraintSpec:
    """Free text with tags in it (`triggered_tags`, `token_triggered_tags`), none of which is in the thought."""
    tags = form_of(spec)
    form = sequence(_thought(thought, special_texts), tags)
    if thought == "unsaid":  # text without a thought does not begin one, or a call in a thought might be read as one
        form = either([form, {**tags, "excludes": [*tags.get("excludes", ()), BEGIN]}])
    return _tag(form, spec)


def _tag(form: Form, spec: ConstraintSpec) -> ConstraintSpec:
    return constraint_spec.structural_tag({"format": form}, whitespace=spec.whitespace)


def _thought(thought: Thought, special_texts: Collection[str]) -> Form:
    """From where the prompt ends to the closing mark, which occurs nowhere else in it."""
    elements = []
    if thought == "unsaid":  # GLM breaks the line first
        elements = [{"type": "optional", "content": text("\n")}, _mark(BEGIN, special_texts)]
    if END in special_texts:
        elements += [{"type": "any_text", "excludes": [END]}, token(END)]
    else:
        elements.append({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": END})
    return sequence(*elements)


def _mark(mark: str, special_texts: Collection[str]) -> Form:
    return token(mark) if mark in special_texts else text(mark)
