"""Constraints in outlines (1.2 and 1.3): a backend for its generators over models of transformers.

::

    from phloem.faces.outlines import register

    register()  # once in a process
    outlines.Generator(model, Person, backend="phloem")("A person, as JSON: ", max_new_tokens=200)

outlines has a fixed list of backends and no entry points for others, so `register` wraps the function that looks one up
by its name (`outlines.backends._get_backend`); names that it knows stay as they are. Without that a generator takes a
processor: `outlines.Generator(model, processor=PhloemBackend(model).get_regex_logits_processor("[a-z]+"))`. This module
imports no outlines before `register` does. Cost: a vocabulary for each model, and what `ConstraintProcessor` costs.
"""

from __future__ import annotations

import inspect
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from ..errors import ConfigError
from ..fsm import Compiler, Constraint
from ..fsm.any_json import Whitespace
from .transformers import ConstraintProcessor
from .vocabulary import Vocabulary

NAME = "phloem"
WHITESPACE: dict[str | None, Whitespace] = {None: "flexible", "": "compact"}  # by outlines' `whitespace_pattern`


class PhloemBackend:
    """What `outlines.backends.base.BaseBackend` asks for, over a model that outlines has of transformers.

    Args:
        model: what `outlines.from_transformers` returns.
        max_new_tokens: what each call is going to be given; every output is complete within it. None: outputs may be
            cut short.

    Raises:
        ConfigError: a model of another library.
    """

    def __init__(self, model: Any, *, max_new_tokens: int | None = None) -> None:
        tokenizer = getattr(model, "hf_tokenizer", None)
        if tokenizer is None:
            raise ConfigError(f"model: expected what outlines.from_transformers returns, got {type(model).__name__}")
        self._compiler = Compiler(Vocabulary.from_transformers(tokenizer))
        self._max_new_tokens = max_new_tokens

    def get_json_schema_logits_processor(
        self, json_schema: str, whitespace_pattern: str | None = None
    ) -> ReusableProcessor:
        """JSON that is valid under a schema, with no keys beside those that it names, unless it says what they may be.

        whitespace_pattern: None: a space or a line break where JSON allows it; "": none at all. Others are refused.
        """
        whitespace = WHITESPACE.get(whitespace_pattern)
        if whitespace is None:
            raise ConfigError(f'whitespace_pattern: give None or "", not {whitespace_pattern!r}')
        constraint = self._compiler.json_schema(json_schema, whitespace=whitespace, extra_keys="never")
        return self._processor(constraint)

    def get_regex_logits_processor(self, regex: str) -> ReusableProcessor:
        """Texts that match a pattern from end to end."""
        return self._processor(self._compiler.regex(regex))

    def get_cfg_logits_processor(self, grammar: str) -> ReusableProcessor:
        """Sentences of a grammar in EBNF, GBNF or Lark's notation."""
        return self._processor(self._compiler.grammar(grammar))

    def _processor(self, constraint: Constraint) -> ReusableProcessor:
        return ReusableProcessor(constraint, self._max_new_tokens)


class ReusableProcessor:
    """A `ConstraintProcessor` for each call of `generate`: outlines says when one begins."""

    def __init__(self, constraint: Constraint, max_new_tokens: int | None) -> None:
        self._constraint = constraint
        self._max_new_tokens = max_new_tokens
        self.reset()

    def reset(self) -> None:
        """The next call is the first of a new `generate`."""
        self._processor = ConstraintProcessor(self._constraint, max_new_tokens=self._max_new_tokens)

    def __call__(self, input_ids: Tensor, logits: Tensor) -> Tensor:
        """input_ids `[rows, length]`, logits `[rows, vocabulary]` -> the logits, -inf for what is forbidden."""
        return self._processor(input_ids, logits)


def register(*, max_new_tokens: int | None = None) -> None:
    """Makes `backend="phloem"` known to outlines; another call replaces what the last one said.

    Raises:
        ConfigError: an outlines whose backends are looked up in another way.
    """
    from outlines import backends
    from outlines.backends.base import BaseBackend

    found = getattr(backends, "_get_backend", None)
    known = getattr(found, "before_phloem", found)
    if known is None or [*inspect.signature(known).parameters] != ["backend_name", "model"]:
        raise ConfigError(
            "outlines: this version looks its backends up in another way than 1.2 and 1.3, which are known here; "
            "give a generator processor=PhloemBackend(model).get_json_schema_logits_processor(schema) instead"
        )
    of_models: WeakKeyDictionary[Any, PhloemBackend] = WeakKeyDictionary()

    def get_backend(backend_name: str, model: Any) -> Any:
        if backend_name != NAME:
            return known(backend_name, model)
        if model not in of_models:
            of_models[model] = PhloemBackend(model, max_new_tokens=max_new_tokens)
        return of_models[model]

    get_backend.before_phloem = known  # type: ignore[attr-defined]
    BaseBackend.register(PhloemBackend)
    backends._get_backend = get_backend
