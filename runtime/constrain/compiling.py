"""A constraint as the caller states it, compiled: for a tokenizer, or only to see whether it can be.

Whether a pattern, schema or grammar can be enforced does not depend on a model, nearly: what a vocabulary decides is
which special tokens there are, and in what time and memory it all fits. So it can be checked before there is an engine,
against a vocabulary of the 256 bytes in which every name is that of a special token.
"""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import assert_never

from ...errors import ConstraintTooLarge
from ...fsm import Compiler, Constraint, Limits, Vocabulary
from .spec import ConstraintSpec, Whitespace

CHECK_SECONDS = 0.25  # of CPU time: what is not found out by then is left to the engine and its own bounds
MAX_CHECKED = 128


def compile_spec(compiler: Compiler, spec: ConstraintSpec, json_whitespace: Whitespace) -> Constraint:
    """The constraint for the compiler's vocabulary, from its cache if it was seen before.

    Args:
        json_whitespace: of JSON for which the constraint names no layout.

    Raises:
        ConstraintError: it cannot be enforced.
    """
    whitespace = spec.whitespace or json_whitespace
    if spec.kind == "choice":
        return compiler.choice(spec.source)
    if spec.kind == "json_object":
        return compiler.json_object(whitespace=whitespace)
    assert isinstance(spec.source, str)
    if spec.kind == "json_schema":
        return compiler.json_schema(
            spec.source,
            whitespace=whitespace,
            key_order=spec.key_order,
            extra_keys=spec.extra_keys,
            resources=json.loads(spec.resources or "{}"),
        )
    if spec.kind == "structural_tag":
        return compiler.structural_tag(spec.source, whitespace=whitespace)
    if spec.kind == "regex":
        return compiler.regex(spec.source)
    if spec.kind == "grammar":
        return compiler.grammar(spec.source, spec.syntax)
    assert_never(spec.kind)


def check_spec(spec: ConstraintSpec) -> None:
    """Raises what any engine would raise for this constraint. Cost: about a millisecond, once for each; thread-safe.

    Raises:
        ConstraintError: it is not well formed, cannot be enforced, or nothing satisfies it.
    """
    _check(spec.kind, spec.source, spec.syntax, spec.key_order, spec.extra_keys, spec.resources)


@functools.lru_cache(MAX_CHECKED)
def _check(
    kind: str, source: str | tuple[str, ...], syntax: str, key_order: str, extra_keys: str, resources: str
) -> None:
    spec = ConstraintSpec(kind, source, None, None, syntax, key_order, extra_keys, resources)  # type: ignore[arg-type]
    with suppress(ConstraintTooLarge):
        compile_spec(_checker(), spec, "compact")


@functools.cache
def _checker() -> Compiler:
    vocabulary = _AnyVocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])
    return Compiler(vocabulary, max_cached_bytes=0, limits=Limits(max_compile_seconds=CHECK_SECONDS))


class _AnyVocabulary(Vocabulary):
    """Has a special token of every name and number; it spells just that."""

    def spell_special(self, token: int | str) -> bytes | None:
        return str(token).encode("utf-8", "surrogatepass")
