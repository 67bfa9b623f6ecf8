"""Constraints in vLLM: its structured outputs, by this engine.

::

    VLLM_PLUGINS=phloem vllm serve MODEL

vLLM loads the entry point `phloem` of `vllm.general_plugins`, that is `register`. It does nothing unless `VLLM_PLUGINS`
names phloem, so that an installed phloem changes no server by itself. vLLM has a fixed list of backends; `register`
wraps `StructuredOutputManager.grammar_init`, so that what requests name there is compiled here, whichever backend they
were checked for: what vLLM's own check refuses stays refused. This module imports no vLLM before `register` does.
Cost: a vocabulary for each set of stop tokens that requests have; a mask that was seen before is a copy.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError
from ..fsm import Compiler, Constraint
from ..fsm.any_json import Whitespace
from .matcher import GrammarMatcher
from .vocabulary import Vocabulary

NAME = "phloem"
READ = ("0.31", "0.32", "0.33")  # the versions whose interface this was written for
MAX_COMPILERS = 8  # sets of stop tokens whose constraints are kept


class PhloemGrammar:
    """One request's place in its constraint: a `StructuredOutputGrammar`. Tokens after the end token are ignored."""

    def __init__(self, constraint: Constraint) -> None:
        self._matcher = GrammarMatcher(constraint)

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Takes tokens one after the other; False at the first that is not allowed, and those before it stay taken."""
        for token_id in tokens:
            if self._matcher.is_terminated():
                break
            if not self._matcher.accept_token(token_id):
                return False
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The beginning of `tokens` that is allowed; nothing is taken."""
        ahead, count = self._matcher.fork(), 0
        while count < len(tokens) and not ahead.is_terminated() and ahead.accept_token(tokens[count]):
            count += 1
        return tokens[:count]

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens."""
        self._matcher.rollback(num_tokens)

    def fill_bitmask(self, bitmask: Tensor, batch_index: int) -> None:
        """Row `batch_index` of an int32 `[rows, words]` on the CPU."""
        self._matcher.fill_next_token_bitmask(bitmask, batch_index)

    def is_terminated(self) -> bool:
        """Whether an end token was taken."""
        return self._matcher.is_terminated()

    def reset(self) -> None:
        """Goes back to the beginning."""
        self._matcher.reset()


class PhloemBackend:
    """vLLM's `StructuredOutputBackend`: compiles what requests ask for. Safe on any thread.

    Args:
        vllm_config: its `structured_outputs_config.disable_any_whitespace` is read.
        tokenizer: of transformers.
        vocab_size: the width of the model's logits.
    """

    def __init__(self, vllm_config: Any, tokenizer: Any, vocab_size: int) -> None:
        self.vllm_config, self.tokenizer, self.vocab_size = vllm_config, tokenizer, vocab_size
        is_compact = vllm_config.structured_outputs_config.disable_any_whitespace
        self._whitespace: Whitespace = "compact" if is_compact else "flexible"
        self._compiler = functools.lru_cache(MAX_COMPILERS)(self._new_compiler)
        self._compiler(None)  # a tokenizer that cannot be read is an error now

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, stop_token_ids: Collection[int] | None = None
    ) -> PhloemGrammar:
        """A request's grammar. request_type: a `StructuredOutputOptions`; stop_token_ids: what ends its text.

        Raises:
            ConstraintError: what cannot be enforced, or is no schema, pattern or grammar, with the place.
        """
        ids = frozenset(i for i in stop_token_ids or () if 0 <= i < self.vocab_size)
        return PhloemGrammar(self._compile(self._compiler(ids or None), request_type.name, grammar_spec))

    def allocate_token_bitmask(self, max_num_seqs: int) -> Tensor:
        """int32 `[max_num_seqs, ceil(vocab_size / 32)]`, everything allowed."""
        return torch.full((max_num_seqs, -(-self.vocab_size // 32)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Lets go of what was compiled."""
        self._compiler.cache_clear()

    def _new_compiler(self, stop_token_ids: frozenset[int] | None) -> Compiler:
        return Compiler(Vocabulary.from_transformers(self.tokenizer, eos_ids=stop_token_ids, size=self.vocab_size))

    def _compile(self, compiler: Compiler, kind: str, spec: str) -> Constraint:
        if kind == "JSON":
            return compiler.json_schema(spec, whitespace=self._whitespace, extra_keys="never")
        if kind == "JSON_OBJECT":
            return compiler.json_object(whitespace=self._whitespace)
        if kind == "REGEX":
            return compiler.regex(spec)
        if kind == "CHOICE":
            return compiler.choice(json.loads(spec))
        if kind == "GRAMMAR":
            return compiler.grammar(spec)
        if kind == "STRUCTURAL_TAG":
            return compiler.structural_tag(spec, whitespace=self._whitespace)
        raise ConfigError(f"structured outputs: {kind} is not known here; this was written for vLLM {', '.join(READ)}")


def register() -> None:
    """The entry point: from now on this process's requests are compiled here, if `VLLM_PLUGINS` names phloem.

    Raises:
        ConfigError: a vLLM that this was not written for.
    """
    if NAME not in os.environ.get("VLLM_PLUGINS", "").split(","):
        return
    from vllm.version import __version__ as version

    if not version.startswith(tuple(f"{read}." for read in READ)):
        raise ConfigError(
            f"vLLM {version}: phloem's structured outputs were written for {', '.join(READ)}; "
            "install one of these, or leave phloem out of VLLM_PLUGINS"
        )
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

    StructuredOutputGrammar.register(PhloemGrammar)
    StructuredOutputBackend.register(PhloemBackend)
    theirs = StructuredOutputManager.grammar_init
    if hasattr(theirs, "before_phloem"):
        return

    @functools.wraps(theirs)
    def grammar_init(self: Any, request: Any) -> None:
        if request.structured_output_request is not None:
            if self.backend is None:
                vocab_size = self.vllm_config.model_config.get_vocab_size()
                self.backend = PhloemBackend(self.vllm_config, self.tokenizer, vocab_size)
            # an engine has one backend, and refuses requests that were checked for another
            self.backend_name = request.sampling_params.structured_outputs._backend
        theirs(self, request)

    grammar_init.before_phloem = theirs  # type: ignore[attr-defined]
    StructuredOutputManager.grammar_init = grammar_init
