"""What other engines ask of a grammar backend, as recorded from their packages, and stand-ins for the packages.

A record gives each method's parameters after `self`, in order; `?` marks those with a default. Where a peer is
installed its own classes are taken, and the record is checked against them; elsewhere stand-ins made from the records,
with as much of the peers' behaviour as the tests need. Read from outlines 1.3.3, SGLang 0.5.23, vLLM 0.33.0.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

import phloem as ph
from phloem.runtime.models import resolve_model

TOKENIZER = SimpleNamespace(eos_token_id=2, vocab_file=str(resolve_model("nano") / "tokenizer.model"))
SIZE = ph.Vocabulary.from_transformers(TOKENIZER).size + 7  # logits may be wider than there are tokens
VOCABULARY = ph.Vocabulary.from_transformers(TOKENIZER, size=SIZE)

Interface = Mapping[str, str]

OUTLINES_BACKEND: Interface = {
    "get_json_schema_logits_processor": "json_schema whitespace_pattern?",
    "get_regex_logits_processor": "regex",
    "get_cfg_logits_processor": "grammar",
}
SGLANG_GRAMMAR: Interface = {
    "maybe_init_reasoning": "reasoning",
    "accept_token": "token",
    "rollback": "k",
    "is_terminated": "",
    "allocate_vocab_mask": "vocab_size batch_size device",
    "fill_vocab_mask": "vocab_mask idx",
    "fill_vocab_mask_batched": "entries vocab_mask",
    "reset_vocab_mask": "vocab_mask",
    "move_vocab_mask": "vocab_mask device",
    "apply_vocab_mask": "logits vocab_mask",
    "copy": "",
    "try_jump_forward": "tokenizer",
    "jump_forward_str_state": "helper",
    "jump_and_retokenize": "old_output_ids new_output_ids next_state",
}
SGLANG_BACKEND: Interface = {
    "dispatch_json": "key_string",
    "dispatch_regex": "key_string",
    "dispatch_ebnf": "key_string",
    "dispatch_structural_tag": "key_string",
    "set_token_filter": "vocab_mask token_ids batch_idx is_allowed? reset_vocab_mask?",
    "get_cached_or_future_value": "key require_reasoning",
    "set_cache": "key value",
    "reset": "",
}
VLLM_GRAMMAR: Interface = {
    "accept_tokens": "request_id tokens",
    "validate_tokens": "tokens",
    "rollback": "num_tokens",
    "fill_bitmask": "bitmask batch_index",
    "is_terminated": "",
    "reset": "",
}
VLLM_BACKEND: Interface = {
    "compile_grammar": "request_type grammar_spec stop_token_ids?",
    "allocate_token_bitmask": "max_num_seqs",
    "destroy": "",
}


def interface_of(cls: type, names: Interface) -> Interface:
    """The same of a class, for the methods that are named."""
    found = {}
    for name in names:
        parameters = [*inspect.signature(getattr(cls, name)).parameters.values()]
        if not isinstance(inspect.getattr_static(cls, name), staticmethod):
            parameters = parameters[1:]
        found[name] = " ".join(p.name + "?" * (p.default is not p.empty) for p in parameters)
    return found


@contextmanager
def peer(package: str) -> Iterator[None]:
    """Within it the package can be imported: itself where it is installed, else a stand-in."""
    if importlib.util.find_spec(package) is not None:
        yield
        return
    modules = {"outlines": _outlines, "sglang": _sglang, "vllm": _vllm}[package]()
    for name in [*modules]:
        for end in range(1, name.count(".") + 1):
            parent = ".".join(name.split(".")[:end])
            modules.setdefault(parent, ModuleType(parent))
    for name, module in sorted(modules.items()):
        module.__path__ = []
        if "." in name:
            setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.pop("phloem.faces.sglang", None)  # made of stand-ins


def _module(name: str, **members: Any) -> dict[str, ModuleType]:
    module = ModuleType(name)
    vars(module).update(members)
    return {name: module}


def _abstract(name: str, interface: Interface) -> type:
    return type(ABC)(name, (ABC,), {method: abstractmethod(lambda self: None) for method in interface})


def _outlines() -> dict[str, ModuleType]:
    def _get_backend(backend_name: str, model: Any) -> Any:
        raise ValueError(f"Backend {backend_name} not supported")

    return {
        **_module("outlines.backends", _get_backend=_get_backend),
        **_module("outlines.backends.base", BaseBackend=_abstract("BaseBackend", OUTLINES_BACKEND)),
    }


def _sglang() -> dict[str, ModuleType]:
    registry: dict[str, Any] = {}
    choices = ["xgrammar"]

    class BaseGrammarObject:
        def __init__(self) -> None:
            self.finished, self.grammar_stats, self.current_token = False, None, None

        def maybe_init_reasoning(self, reasoning: bool) -> None: ...

        @staticmethod
        def fill_vocab_mask_batched(entries: list[Any], vocab_mask: torch.Tensor) -> None:
            for entry in entries:
                entry.grammar.fill_vocab_mask(vocab_mask, entry.row)

    class InvalidGrammarObject(BaseGrammarObject):
        def __init__(self, error_message: str) -> None:
            super().__init__()
            self.error_message = error_message

        def copy(self) -> InvalidGrammarObject:
            return self

    class BaseGrammarBackend:
        def __init__(self) -> None:
            self.cache: dict[Any, Any] = {}

        def get_cached_or_future_value(self, key: tuple[str, str], require_reasoning: bool) -> tuple[Any, bool]:
            if key in self.cache:
                return self.cache[key].copy(), True
            made = getattr(self, f"dispatch_{key[0]}")(key[1])
            return SimpleNamespace(result=lambda: made), False

        def set_cache(self, key: tuple[str, str], value: Any) -> None:
            self.cache[key] = value

        def reset(self) -> None:
            self.cache.clear()

    return {
        **_module(
            "sglang.srt.constrained.base_grammar_backend",
            BaseGrammarBackend=BaseGrammarBackend,
            BaseGrammarObject=BaseGrammarObject,
            GRAMMAR_BACKEND_REGISTRY=registry,
            GrammarStats=lambda dispatch_type: SimpleNamespace(dispatch_type=dispatch_type, is_cache_hit=False),
            InvalidGrammarObject=InvalidGrammarObject,
            register_grammar_backend=registry.__setitem__,
        ),
        **_module(
            "sglang.srt.server_args",
            GRAMMAR_BACKEND_CHOICES=choices,
            add_grammar_backend_choices=choices.extend,
        ),
    }


def _vllm() -> dict[str, ModuleType]:
    class StructuredOutputManager:
        """As the published one, without reasoning and threads."""

        backend: Any
        backend_name: str

        def grammar_init(self, request: Any) -> None:
            wanted = request.sampling_params.structured_outputs._backend
            if self.backend_name is not None and wanted != self.backend_name:
                raise ValueError("Structured output processing only supports one backend per engine.")
            kind, spec = request.structured_output_request.structured_output_key
            stop_ids = request.sampling_params.all_stop_token_ids
            grammar: Any
            try:
                grammar = self.backend.compile_grammar(kind, spec, stop_token_ids=stop_ids)
            except Exception as error:
                grammar = Future()
                grammar.set_exception(error)
            request.structured_output_request.grammar = grammar

        def grammar_bitmask(self, requests: Any, ids: list[str], drafts: dict[str, list[int]]) -> Any:
            stride = 1 + self.vllm_config.num_speculative_tokens  # type: ignore[attr-defined]
            bitmask = self.backend.allocate_token_bitmask(stride * len(ids))
            for index, request_id in enumerate(ids):
                grammar = requests[request_id].structured_output_request.grammar
                for row, token_id in enumerate([*drafts[request_id], None], index * stride):
                    grammar.fill_bitmask(bitmask, row)
                    assert token_id is None or grammar.accept_tokens(request_id, [token_id])
                grammar.rollback(len(drafts[request_id]))
            return bitmask.numpy()

    return {
        **_module("vllm.version", __version__="0.33.0"),
        **_module("vllm.v1.structured_output", StructuredOutputManager=StructuredOutputManager),
        **_module(
            "vllm.v1.structured_output.backend_types",
            StructuredOutputBackend=_abstract("StructuredOutputBackend", VLLM_BACKEND),
            StructuredOutputGrammar=_abstract("StructuredOutputGrammar", VLLM_GRAMMAR),
        ),
    }
