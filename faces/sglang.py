"""Constraints in SGLang: a grammar backend.

::

    python -m sglang.launch_server --model-path MODEL --grammar-backend phloem

SGLang loads the entry point `phloem` of `sglang.srt.plugins`, that is `register`, in each of its processes; the backend
is used only where `--grammar-backend` names it. Written for SGLang 0.5.23, whose base classes are imported here. Masks
are int32 bitmasks in XGrammar's layout, filled on the CPU. What cannot be enforced is an invalid grammar, which fails
its request with the place in it. Cost: a vocabulary at the start; a mask that was seen before is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from sglang.srt.constrained.base_grammar_backend import (
    BaseGrammarBackend,
    BaseGrammarObject,
    GrammarStats,
    InvalidGrammarObject,
    register_grammar_backend,
)
from torch import Tensor

from ..errors import ConstraintError
from ..fsm import Compiler, Constraint
from ..fsm.any_json import Whitespace
from .matcher import GrammarMatcher
from .vocabulary import Vocabulary

NAME = "phloem"
ANY_JSON = "$$ANY$$"  # in the place of a schema


class PhloemGrammar(BaseGrammarObject):
    """One request's place in its constraint."""

    def __init__(self, matcher: GrammarMatcher, kind: str) -> None:
        super().__init__()
        self._matcher = matcher
        self._kind = kind
        self.grammar_stats = GrammarStats(dispatch_type=kind)

    def accept_token(self, token: int) -> None:
        """Takes a token; after the end token nothing happens. Raises ValueError: it is not allowed."""
        if self.is_terminated():
            return
        self.current_token = token
        if not self._matcher.accept_token(token):
            raise ValueError(f"token {token} is not allowed after {self._matcher.num_tokens} tokens of a {self._kind}")

    def rollback(self, k: int) -> None:
        """Takes back the last k tokens."""
        self._matcher.rollback(k)

    def is_terminated(self) -> bool:
        """Whether an end token was taken."""
        return self._matcher.is_terminated()

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: object) -> Tensor:
        """int32 `[batch_size, ceil(vocab_size / 32)]` on the CPU, everything allowed."""
        return PhloemGrammarBackend.allocate_vocab_mask(vocab_size, batch_size, device)

    def fill_vocab_mask(self, vocab_mask: Tensor, idx: int) -> None:
        """Row idx: which tokens may come next."""
        self._matcher.fill_next_token_bitmask(vocab_mask, idx)

    @staticmethod
    def reset_vocab_mask(vocab_mask: Tensor) -> None:
        """Everything allowed again."""
        vocab_mask.fill_(-1)

    @staticmethod
    def move_vocab_mask(vocab_mask: Tensor, device: object) -> Tensor:
        """The mask on the device of the logits, without waiting for the copy."""
        return PhloemGrammarBackend.move_vocab_mask(vocab_mask, device)

    @staticmethod
    def apply_vocab_mask(logits: Tensor, vocab_mask: Tensor) -> None:
        """logits `[batch_size, vocabulary]`: -inf, in place, for what is forbidden. Both on one device."""
        PhloemGrammarBackend.apply_vocab_mask(logits, vocab_mask)

    def copy(self) -> PhloemGrammar:
        """Another at the same place, independent of this one."""
        twin = PhloemGrammar(self._matcher.fork(), self._kind)
        twin.grammar_stats.is_cache_hit = True
        twin.finished, twin.current_token = self.finished, self.current_token
        return twin

    def try_jump_forward(self, tokenizer: object) -> tuple[list[int], str] | None:
        """The text that must come next whatever is chosen; None if there is none."""
        text = self._matcher.find_jump_forward_string()
        return ([], text) if text else None

    def jump_forward_str_state(self, helper: tuple[list[int], str]) -> tuple[str, int]:
        """The text to append; states have no numbers here, hence -1."""
        return helper[1], -1

    def jump_and_retokenize(self, old_output_ids: list[int], new_output_ids: list[int], next_state: int) -> None:
        """Takes the new tokens in the place of the old: back to where they part, then on.

        Raises:
            ValueError: one is not allowed.
        """
        same = 0
        while same < min(len(old_output_ids), len(new_output_ids)) and old_output_ids[same] == new_output_ids[same]:
            same += 1
        self.rollback(len(old_output_ids) - same)
        for token in new_output_ids[same:]:
            self.accept_token(token)


class PhloemGrammarBackend(BaseGrammarBackend):
    """Compiles what requests ask for; keys and cache are SGLang's.

    Args:
        tokenizer: of transformers.
        vocab_size: the width of the model's logits.
        eos_token_ids: what ends a text; None: what the tokenizer says.
        any_whitespace: whether JSON may have a space or a line break where JSON allows one.
    """

    def __init__(
        self, tokenizer: Any, vocab_size: int, eos_token_ids: Collection[int] | None, *, any_whitespace: bool = True
    ) -> None:
        super().__init__()
        vocabulary = Vocabulary.from_transformers(tokenizer, eos_ids=eos_token_ids or None, size=vocab_size)
        self._compiler = Compiler(vocabulary)
        self._whitespace: Whitespace = "flexible" if any_whitespace else "compact"

    def dispatch_json(self, key_string: str) -> BaseGrammarObject:
        """A schema, as JSON text; "$$ANY$$" for any JSON value."""
        if key_string == ANY_JSON:
            return self._grammar("json", lambda: self._compiler.json_value(whitespace=self._whitespace))
        return self._grammar(
            "json",
            lambda: self._compiler.json_schema(key_string, whitespace=self._whitespace, extra_keys="never"),
        )

    def dispatch_regex(self, key_string: str) -> BaseGrammarObject:
        """A pattern that the whole text matches."""
        return self._grammar("regex", lambda: self._compiler.regex(key_string))

    def dispatch_ebnf(self, key_string: str) -> BaseGrammarObject:
        """A grammar in EBNF, GBNF or Lark's notation."""
        return self._grammar("ebnf", lambda: self._compiler.grammar(key_string))

    def dispatch_structural_tag(self, key_string: str) -> BaseGrammarObject:
        """Free text with tags in it, as JSON text, in the older form or the newer."""
        return self._grammar(
            "structural_tag", lambda: self._compiler.structural_tag(key_string, whitespace=self._whitespace)
        )

    def _grammar(self, kind: str, compiled: Callable[[], Constraint]) -> BaseGrammarObject:
        try:
            return PhloemGrammar(GrammarMatcher(compiled()), kind)
        except ConstraintError as error:
            return InvalidGrammarObject(str(error))

    def reset(self) -> None:
        """Lets go of what was compiled."""
        super().reset()
        self._compiler.clear()

    @staticmethod
    def allocate_vocab_mask(vocab_size: int, batch_size: int, device: object) -> Tensor:
        """See `PhloemGrammar`; in pinned memory where a GPU may fetch it."""
        shape = batch_size, -(-vocab_size // 32)
        return torch.full(shape, -1, dtype=torch.int32, pin_memory=torch.cuda.is_available())

    @staticmethod
    def move_vocab_mask(vocab_mask: Tensor, device: Any) -> Tensor:
        """See `PhloemGrammar`."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: Tensor, vocab_mask: Tensor) -> None:
        """See `PhloemGrammar`. Columns of the logits that the mask does not reach stay as they are."""
        bits = torch.arange(8, dtype=torch.uint8, device=vocab_mask.device)
        flags = (vocab_mask.contiguous().view(torch.uint8).unsqueeze(-1) >> bits) & 1
        width = min(logits.shape[-1], vocab_mask.shape[-1] * 32)
        logits[:, :width].masked_fill_(flags.flatten(1)[:, :width] == 0, -torch.inf)

    @property
    def is_support_token_filter(self) -> bool:
        """Whether `set_token_filter` does what it says."""
        return True

    @staticmethod
    def set_token_filter(
        vocab_mask: Tensor,
        token_ids: Sequence[int],
        batch_idx: int,
        is_allowed: bool = True,
        reset_vocab_mask: bool = True,
    ) -> None:
        """Allows or forbids some tokens in a row; with `reset_vocab_mask` the others are all forbidden, or allowed."""
        row = vocab_mask[batch_idx]
        if reset_vocab_mask:
            row.fill_(0 if is_allowed else -1)
        for token_id in token_ids:
            word, bit = divmod(token_id, 32)
            flag = -(1 << 31) if bit == 31 else 1 << bit
            row[word] = row[word] | flag if is_allowed else row[word] & ~flag


def create_backend(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Collection[int] | None
) -> BaseGrammarBackend:
    """What SGLang calls for `--grammar-backend phloem`. With a reasoning parser a grammar begins after it."""
    any_whitespace = not server_args.constrained_json_disable_any_whitespace
    backend = PhloemGrammarBackend(tokenizer, vocab_size, eos_token_ids, any_whitespace=any_whitespace)
    if not server_args.reasoning_parser:
        return backend
    # SGLang wraps its own backends so, but none that was registered
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    parser = ReasoningParser(model_type=server_args.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer)
    return ReasonerGrammarBackend(backend, parser, tokenizer, server_args.enable_strict_thinking)


def register() -> None:
    """The entry point: makes `--grammar-backend phloem` known in this process."""
    from sglang.srt.server_args import GRAMMAR_BACKEND_CHOICES, add_grammar_backend_choices

    if NAME not in GRAMMAR_BACKEND_CHOICES:
        add_grammar_backend_choices([NAME])
    register_grammar_backend(NAME, create_backend)
