"""The jinja2 environment for chat templates: immutable, sandboxed, and bounded in memory, time and depth.

Templates come with a checkpoint, so they are code from a foreign source. jinja2's immutable sandbox keeps them away
from Python. On top of that every operation of a rendering is charged to its account (`template_work`): calls, filters
and operators by the hooks below, and loops, lists, comparisons and output by filters that `compiled` puts around them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from markupsafe import Markup

from ...errors import ModelError
from .template_functions import raise_exception, strftime_now, tojson
from .template_work import (
    CONSTANT_FILTERS,
    CONSTANT_METHODS,
    CONSTANT_TESTS,
    LINEAR_FILTERS,
    LINEAR_METHODS,
    MAX_INT_BITS,
    PER_SLOW_CHAR,
    REFUSED_METHODS,
    SLOW_FILTERS,
    BoundedFormatter,
    TooMuchWork,
    Work,
    refuse,
)

WORK = "_phloem_work"  # the account, among a template's variables
# filters of our own
TURN, MADE, SLICED, STEPPED, READ = (f"_phloem_{name}" for name in ("turn", "made", "sliced", "stepped", "read"))
_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict, nodes.Concat)

MAX_SOURCE = 1 << 20  # characters of a template
MAX_TOKENS = 16_384  # of its expressions and tags: the longest published ones have a third of that
MAX_LOOPS = 512  # each costs as much as there are others


class OutputTooLong(TemplateError):
    """The output passed its bound."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks what was generated, for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 reads a plain class attribute)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ShallowNamespace(Namespace):
    """A namespace whose text does not say what is in it: another one may be, and that one in this."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | bytes | int | float | type) and attr in REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        work = _work(context)
        if operator == "%" and isinstance(left, str):
            work.check_percent(left, right if isinstance(right, tuple) else (right,))
        elif operator in ("*", "**"):
            if isinstance(left, int) and isinstance(right, int):
                bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
                if bits > MAX_INT_BITS:
                    raise TooMuchWork(f"it makes something too large with {operator}")
            else:
                value, count = (right, left) if isinstance(left, int) else (left, right)
                work.check_product(value, (count,), operator)
        return work.charge_result(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        work = _work(__context)
        method = getattr(__obj, "__wrapped__", __obj)
        if isinstance(getattr(method, "__self__", None), Markup):  # its methods are Python's own and hide those of str
            __obj = method = getattr(str(method.__self__), method.__name__)
        owner = getattr(method, "__self__", None) if isinstance(method, types.BuiltinMethodType) else None
        if isinstance(owner, str) and method.__name__ in ("format", "format_map"):
            values = args[0] if method.__name__ == "format_map" else kwargs
            return work.charge_result(BoundedFormatter(__self, work).vformat(owner, args, values))
        if isinstance(owner, str | bytes | int | float):
            if method.__name__ not in LINEAR_METHODS:
                work.check_product(owner, (*args, *kwargs.values()), method.__name__)
            work.charge_input(owner)
        elif owner is not None:
            work.charge_input(None if method.__name__ in CONSTANT_METHODS else owner)
        if owner is not None:
            for value in (*args, *kwargs.values()):
                work.charge_input(value)
        return work.charge_result(super().call(__context, __obj, *args, **kwargs))


def template_environment() -> jinja2.Environment:
    """An environment with what chat templates expect beyond jinja2: `raise_exception`, `strftime_now`, a `tojson`
    that leaves characters as they are, loop controls, the `generation` tag, and trimmed blocks."""
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        optimized=False,  # it would compute before there is an account, and takes long over deep expressions
    )
    del environment.globals["lipsum"]
    del environment.filters["striptags"]
    environment.globals |= {
        "namespace": ShallowNamespace,
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
    }
    environment.filters["tojson"] = tojson
    for name, function in environment.filters.items():
        environment.filters[name] = _charged(name, function)
    for name, function in environment.tests.items():
        if name not in CONSTANT_TESTS:
            environment.tests[name] = _charged_test(function)
    environment.filters |= {TURN: _turn, MADE: _made, SLICED: _sliced, STEPPED: _stepped, READ: _read}
    return environment


def parsed(environment: jinja2.Environment, source: str, place: str) -> nodes.Template:
    """A template's tree. Raises ModelError: it does not parse, is too long, or is nested too deeply; the message says
    where."""
    _check_length(environment, source, place)
    try:
        parser = Parser(environment, source)
        return parser.parse()
    except jinja2.TemplateError as error:
        raise broken(place, error) from None
    except RecursionError:
        raise _too_deep(place, parser.stream.current.lineno) from None
    except ValueError as error:  # a number of thousands of digits
        raise ModelError(f"{place}: the chat template does not parse: {error}") from None


def _check_length(environment: jinja2.Environment, source: str, place: str) -> None:
    """That a template can be compiled in a moment, and names nothing that is the runtime's."""
    if len(source) > MAX_SOURCE:
        line = source.count("\n", 0, MAX_SOURCE) + 1
        raise ModelError(f"{place}: the chat template is longer than {MAX_SOURCE} characters (line {line})")
    at = source.find("_phloem")
    if at >= 0:
        line = source.count("\n", 0, at) + 1
        raise ModelError(f"{place}: the chat template uses a name that begins with _phloem (line {line}); rename it")
    count = loops = 0
    try:
        for line, kind, value in environment.lex(source):
            count += kind != "whitespace"
            loops += kind == "name" and value == "for"
            if count > MAX_TOKENS or loops > MAX_LOOPS:
                problem = (
                    f"the chat template has more than {MAX_TOKENS} names and signs or {MAX_LOOPS} loops (line {line})"
                )
                raise ModelError(f"{place}: {problem}; take the checkpoint's original template")
    except jinja2.TemplateError as error:
        raise broken(place, error) from None


def compiled(environment: jinja2.Environment, tree: nodes.Template, place: str) -> jinja2.Template:
    """A template whose loops, lists, comparisons and output are charged; the tree is changed.

    Raises ModelError: it is nested too deeply, or it means nothing.
    """
    try:
        _charge_all(tree, environment)
        return environment.from_string(tree)
    except jinja2.TemplateError as error:
        raise broken(place, error) from None
    except SyntaxError as error:
        if "too many" not in error.msg:  # nested blocks, levels of indentation
            raise ModelError(f"{place}: the chat template does not parse: {error.msg}") from None
        raise too_deep(place, tree) from None
    except (RecursionError, MemoryError):  # bounds of Python's own on nesting
        raise too_deep(place, tree) from None


def undeclared(environment: jinja2.Environment, tree: nodes.Template) -> set[str]:
    """The variables that a template reads and does not set; `meta.find_undeclared_variables` without its optimiser."""
    generator = meta.TrackingCodeGenerator(environment)
    generator.optimizer = None
    generator.visit(tree)
    return generator.undeclared_identifiers


def pieces_bounded(template: jinja2.Template, context: Mapping[str, Any], max_chars: int) -> Iterator[str]:
    """The template's output. Raises OutputTooLong beyond `max_chars`, and whatever the template raises."""
    num_chars = 0
    for piece in template.generate(**{**context, WORK: Work(max_chars)}):
        num_chars += len(piece)
        if num_chars > max_chars:
            raise OutputTooLong(f"the output is longer than {max_chars} characters")
        yield piece


def line_of(error: BaseException) -> int | None:
    """The line of the template that an error of a rendering comes from."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _work(context: Context) -> Work:
    work: Work = context[WORK]
    return work


def _charge_all(tree: nodes.Template, environment: jinja2.Environment) -> None:
    """Puts filters around everything that no hook of the environment sees."""
    for loop in list(tree.find_all(nodes.For)):
        written = sum(len(data.data) for node in loop.body for data in node.find_all(nodes.TemplateData))
        turn = nodes.ExprStmt(_filter(nodes.Const(written), TURN), lineno=loop.lineno)
        loop.body.insert(0, turn)
    todo: list[nodes.Node] = [tree]
    for node in todo:
        for field, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, field, [_around(node, part) for part in value])
                todo += [part for part in value if isinstance(part, nodes.Node)]
            elif isinstance(value, nodes.Node):
                setattr(node, field, _around(node, value))
                todo.append(value)
    tree.set_environment(environment)


def _around(parent: nodes.Node, node: Any) -> Any:
    """A node as it stands in its parent, charged."""
    if not isinstance(node, nodes.Expr) or isinstance(node, nodes.Const | nodes.TemplateData):
        return node
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        node = _filter(node, SLICED if node.arg.step is None else STEPPED)
    if isinstance(parent, nodes.Output):
        return _filter(node, MADE)
    if isinstance(parent, nodes.Compare | nodes.Operand):
        return _filter(node, READ)
    if isinstance(parent, nodes.Getitem) and node is parent.arg and not isinstance(node, nodes.Slice):
        return _filter(node, READ)  # a key of an object
    is_literal = isinstance(node, _LITERALS) and getattr(node, "ctx", "load") == "load"
    return _filter(node, MADE) if is_literal else node


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _turn(context: Context, num_chars: int) -> None:
    work = _work(context)
    work.charge(num_chars)
    work.charge_input(None)


@pass_context
def _made(context: Context, value: Any) -> Any:
    return _work(context).charge_result(value)


@pass_context
def _sliced(context: Context, value: Any) -> Any:
    return _work(context).charge_slice(value)


@pass_context
def _stepped(context: Context, value: Any) -> Any:
    return refuse("a step") if isinstance(value, str) else _work(context).charge_slice(value)


@pass_context
def _read(context: Context, value: Any) -> Any:
    _work(context).charge_input(value)
    return value


def _charged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of the environment, charged to the account of the rendering."""
    wanted = getattr(getattr(function, "jinja_pass_arg", None), "name", "")
    is_linear = name in LINEAR_FILTERS

    @pass_context
    @wraps(function)
    def charged(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        work = _work(context)
        if name == "reverse" and isinstance(value, str):
            refuse(name)
        if name == "format":
            work.check_percent(str(value), args or tuple(kwargs.values()))
        elif name == "round":
            for digits in (*args[:1], *kwargs.values()):
                work.check_precision(digits)
        elif not is_linear:
            value = list(value) if isinstance(value, Iterator) else value
            work.check_product(value, (*args, *kwargs.values()), name)
        if name == "sum" and (args or kwargs):
            value = list(value)
            work.charge_sum(len(value))
        work.charge_input(None if name in CONSTANT_FILTERS else value, PER_SLOW_CHAR if name in SLOW_FILTERS else 0)
        work.charge_comparisons(value, args)
        first = {
            "": (),
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }[wanted]
        return work.charge_result(function(*first, value, *args, **kwargs))

    return charged


def _charged_test(function: Any) -> Callable[..., Any]:
    """A test of the environment, charged for what it reads."""
    needs_environment = getattr(getattr(function, "jinja_pass_arg", None), "name", "") == "environment"

    @pass_context
    @wraps(function)
    def charged(context: Context, *values: Any, **kwargs: Any) -> Any:
        work = _work(context)
        for value in values:
            work.charge_input(value)
        return function(context.environment, *values, **kwargs) if needs_environment else function(*values, **kwargs)

    return charged


def broken(place: str, error: jinja2.TemplateError) -> ModelError:
    """The error for a template that jinja2 refuses."""
    line = getattr(error, "lineno", "?")
    return ModelError(f"{place}: the chat template does not parse: {error.message} (line {line})")


def too_deep(place: str, tree: nodes.Template) -> ModelError:
    """The error for a template that is nested too deeply, with the line of what is deepest in it."""
    return _too_deep(place, _deepest_line(tree))


def _too_deep(place: str, line: int) -> ModelError:
    return ModelError(
        f"{place}: the chat template is nested too deeply (line {line}); take the checkpoint's original template"
    )


def _deepest_line(tree: nodes.Node) -> int:
    deepest, line = 0, 1
    todo: list[tuple[nodes.Node, int]] = [(tree, 0)]
    for node, depth in todo:
        if depth > deepest:
            deepest, line = depth, node.lineno or line
        todo += [(inner, depth + 1) for inner in node.iter_child_nodes()]
    return line
