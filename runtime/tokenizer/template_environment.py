"""The jinja2 environment for chat templates: immutable, sandboxed, and bounded in what one expression can make.

Templates come with a checkpoint, so they are somebody else's code. jinja2's immutable sandbox keeps them away from
Python; on top of that, products of text and numbers are bounded, and so is the output (`render_bounded`). There is no
bound on time beyond jinja2's own on `range`: templates are the operator's choice, never a request's.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_PRODUCT = 1 << 20  # longest text or list that one `*` may make, and bits of the largest number


class RefusedByTemplate(TemplateError):
    """The template itself called `raise_exception`."""


class OutputTooLong(TemplateError):
    """The output passed its bound."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what was generated, for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 reads a plain class attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """Refuses products that one short expression could blow up to gigabytes."""
        if operator == "**":
            size = getattr(left, "bit_length", lambda: 64)() * (right if isinstance(right, int) else 64)
        else:
            lengths = [len(side) for side in (left, right) if hasattr(side, "__len__")]
            counts = [side for side in (left, right) if isinstance(side, int)]
            size = lengths[0] * counts[0] if lengths and counts else 0
        if size > MAX_PRODUCT:
            raise SecurityError(f"the template computes something too large with {operator}")
        return super().call_binop(context, operator, left, right)


def template_environment() -> jinja2.Environment:
    """An environment with what chat templates expect beyond jinja2: `raise_exception`, `strftime_now`, a `tojson`
    that leaves characters as they are, loop controls, the `generation` tag, and trimmed blocks."""
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": strftime_now}
    environment.filters["tojson"] = _tojson
    return environment


def render_bounded(template: jinja2.Template, context: Mapping[str, Any], max_chars: int) -> str:
    """The template's output. Raises OutputTooLong beyond `max_chars`, and whatever the template raises."""
    pieces: list[str] = []
    num_chars = 0
    for piece in template.generate(**context):
        num_chars += len(piece)
        if num_chars > max_chars:
            raise OutputTooLong(f"the output is longer than {max_chars} characters")
        pieces.append(piece)
    return "".join(pieces)


def _raise_exception(message: str) -> NoReturn:
    raise RefusedByTemplate(message)


def strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
