"""A chat template that can go on in the middle of a conversation, from where an earlier rendering stood.

Nearly every template is one loop over the messages, and what it writes for a message depends on no later one. Such a
rendering has *checkpoints*, one before each message, and can begin at any of them with what it knew there::

    head │ message 0 │ message 1 │ message 2 │ tail         the first rendering
                     ▲           ▲
    head, unread ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄│ message 2 │ message 3 │ message 4 │ tail        the next turn

Whether a template is of this kind is not guessed. It gets the messages as a sequence that notes what is read of it
(`_Messages`): a checkpoint before message j counts only if nothing behind j was read until then, not even whether
there is something (a length, an index from the end, a loop run backwards or to its end). What the loop carries from
message to message can only be in namespaces, for the sandbox keeps everything else from changing and jinja2 ends
variables with the iteration; these are kept with the checkpoint. The head runs again, so that its variables are there;
dates that were written are compared with today's. Templates in which something else could go on from message to message
(cyclers, joiners, generators in variables, unknown filters) have no checkpoints: `resumable` says None.

Knows one rendering at a time; who has rendered what is `render_memory`'s to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.runtime import LoopContext
from jinja2.utils import Namespace

from .template_environment import ShallowNamespace, compiled, pieces_bounded, strftime_now
from .template_tokens import SEARCHED

KNOWN_GLOBALS = frozenset({"dict", "namespace", "raise_exception", "range", "strftime_now"})
# fmt: off
PURE_FILTERS = frozenset((
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format", "indent",
    "int", "join", "last", "length", "list", "lower", "max", "min", "replace", "round", "safe", "sort", "string", "sum",
    "title", "tojson", "trim", "upper", "wordcount",
))
LAZY_FILTERS = frozenset((
    "batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice", "unique",
))
# fmt: on
READS_ALL = frozenset(("first", "join", "list", "sort", "sum"))  # of these, if they are put behind a lazy one
LOOP_NAMES = frozenset(
    ("cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "revindex", "revindex0")
)
REFUSED_NODES = (nodes.Block, nodes.EvalContextModifier, nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include)
MAX_KEPT_VALUES = 64  # in one namespace, with all that is in them
_ITEMS, _AT = "_phloem_items", "_phloem_at"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a rendering stood before it came to one message.

    Attributes:
        loop: number of the template's loop that was on it.
        loop_index: its `loop.index0`.
        text: written since the checkpoint before this one, or since the beginning.
        end: characters written until here.
        namespaces: their variables; None: rendering cannot go on here.
        dates: format → text of the dates that had been asked for.
    """

    loop: int
    loop_index: int
    text: str
    end: int
    namespaces: tuple[dict[str, Any], ...] | None
    dates: dict[str, str]

    @property
    def num_bytes(self) -> int:
        """Memory, about."""
        kept = [value for variables in self.namespaces or () for value in variables.values()]
        return 400 + sum(100 + getsizeof(value) for value in (self.text, *kept))

    @property
    def is_of_today(self) -> bool:
        """Whether the dates that were asked for are the same still."""
        return all(strftime_now(form) == text for form, text in self.dates.items())


class ResumableTemplate:
    """One template, with a call before each turn of its outer loops."""

    def __init__(self, template: jinja2.Template) -> None:
        """Use `resumable`."""
        self._template = template

    def render(
        self,
        context: Mapping[str, Any],
        messages: list[dict[str, Any]],
        start: int,
        at: Checkpoint | None,
        max_chars: int,
    ) -> tuple[str, dict[int, Checkpoint]]:
        """What the template writes from message `start` on, where `at` is the checkpoint, or all of it without one.

        Returns the text and the checkpoints before later messages. Raises whatever the template raises, and may raise
        where the template alone would not: ask that one then.
        """
        rendering = _Rendering(messages, start, at)
        return rendering.run(self._template, context, max_chars), rendering.checkpoints


def resumable(environment: jinja2.Environment, tree: nodes.Template, place: str) -> ResumableTemplate | None:
    """None if something but namespaces could go on from one message to the next, or nothing loops.

    The tree, from `parsed`, is changed. Raises ModelError as `compiled` does.
    """
    names = {node.name for node in tree.find_all(nodes.Name)}
    if (names & environment.globals.keys()) - KNOWN_GLOBALS or "self" in names:
        return None
    if any(map(_is_refused, tree.find_all(nodes.Node))) or _keeps_a_loop(tree) or _keeps_a_generator(tree):
        return None
    loops = list(_outer_loops(tree.body))
    for number, loop in enumerate(loops):
        here = nodes.Const(number)
        loop.iter = nodes.Call(nodes.Name(_ITEMS, "load"), [loop.iter, here], [], None, None)
        call = nodes.Call(nodes.Name(_AT, "load"), [here, nodes.Name("loop", "load")], [], None, None)
        loop.body.insert(0, nodes.Output([call]))
        loop.set_lineno(loop.lineno).set_environment(environment)
    return ResumableTemplate(compiled(environment, tree, place)) if loops else None


def _is_refused(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Filter):
        return node.name not in PURE_FILTERS | LAZY_FILTERS | {SEARCHED}
    if isinstance(node, nodes.For):
        return node.recursive or node.test is not None
    return isinstance(node, REFUSED_NODES)


def _keeps_a_loop(tree: nodes.Node) -> bool:
    """Whether `loop` is used otherwise than for what can be said of any item by itself."""
    asked = {id(node.node) for node in tree.find_all(nodes.Getattr) if node.attr in LOOP_NAMES}
    return any(node.name == "loop" and id(node) not in asked for node in tree.find_all(nodes.Name))


def _keeps_a_generator(tree: nodes.Node) -> bool:
    """Whether the value of a lazy filter is put anywhere but into another filter or a loop, which read it at once."""
    lazy = {id(node) for node in tree.find_all(nodes.Filter) if node.name in LAZY_FILTERS}
    for node in tree.find_all(nodes.Filter):
        if node.name in READS_ALL | LAZY_FILTERS:
            lazy.discard(id(node.node))
    for loop in tree.find_all(nodes.For):
        lazy.discard(id(loop.iter))
    return bool(lazy)


def _outer_loops(body: Sequence[nodes.Node]) -> Iterator[nodes.For]:
    """Loops that are in no other loop and in no macro."""
    for node in body:
        if isinstance(node, nodes.For):
            yield node
        elif isinstance(node, nodes.If):
            for branch in (node.body, node.elif_, node.else_):
                yield from _outer_loops(branch)


class _Rendering:
    """One run of a template: gives it the messages, and makes checkpoints.

    Attributes:
        num_read: messages that it may know of, from the first one on.
        reads_end: whether it knows where they end.
    """

    def __init__(self, messages: list[dict[str, Any]], start: int, at: Checkpoint | None) -> None:
        self.messages = messages
        self.num_read = 0
        self.reads_end = False
        self.checkpoints: dict[int, Checkpoint] = {}
        self._start = start
        self._resumed = at
        self._loop = at.loop if at is not None else None  # the loop that makes checkpoints
        self._position = 0  # message that it has come to
        self._num_outer = 0  # namespaces that were there when it began
        self._is_local = True  # nothing was written that could depend on later messages
        self._namespaces: list[Namespace] = []
        self._dates = dict(at.dates) if at is not None else {}
        self._end = at.end if at is not None else 0  # characters until the latest checkpoint
        self._pieces: list[str] = []
        self._last: list[str] = []  # since the latest checkpoint

    def run(self, template: jinja2.Template, context: Mapping[str, Any], max_chars: int) -> str:
        own = {"messages": _Messages(self, 0), "namespace": self._namespace, "strftime_now": self._strftime_now}
        own |= {_ITEMS: self._items, _AT: self._at}
        for piece in pieces_bounded(template, {**context, **own}, max_chars):
            self._last.append(piece)
        if self._resumed is not None:
            raise CannotFollow("the loop to be resumed was not reached")
        return "".join(self._pieces + self._last)

    def _items(self, value: Any, loop: int) -> Any:
        """What a loop runs over: the messages from where it is to go on."""
        if not isinstance(value, _Messages):
            return value
        if self._loop is None:
            self._loop = loop
        if self._loop != loop:
            return value
        self._num_outer = len(self._namespaces)
        is_resumed = self._resumed is not None
        return _Items(self, value, self._start if is_resumed else value.offset)

    def come_to(self, position: int) -> None:
        """The loop has taken the message of that position."""
        self._position = position

    def _at(self, loop: int, context: LoopContext) -> str:
        """Called when a loop begins with an item."""
        if loop != self._loop:
            return ""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            context.index0 = resumed.loop_index
            self._restore(resumed)
            return ""
        self._is_local = self._is_local and not self.reads_end and self.num_read <= self._position + 1
        if self._is_local:
            text = "".join(self._last)
            self._end += len(text)
            self.checkpoints[self._position] = Checkpoint(
                loop, context.index0, text, self._end, self._kept_namespaces(), dict(self._dates)
            )
            self._pieces.append(text)
            self._last.clear()
        return ""

    def _restore(self, resumed: Checkpoint) -> None:
        kept = resumed.namespaces
        if kept is None or len(kept) != self._num_outer or self.reads_end or self.num_read > self._start + 1:
            raise CannotFollow("the head did something else than before")
        for namespace, variables in zip(self._namespaces, kept, strict=False):
            attributes = _attributes(namespace)
            attributes.clear()
            attributes.update(variables)
        self._last.clear()

    def _kept_namespaces(self) -> tuple[dict[str, Any], ...] | None:
        outer = [dict(_attributes(namespace)) for namespace in self._namespaces[: self._num_outer]]
        return tuple(outer) if all(map(_is_plain, outer)) else None

    def _namespace(self, *args: Any, **kwargs: Any) -> Namespace:
        namespace = ShallowNamespace(*args, **kwargs)
        self._namespaces.append(namespace)
        return namespace

    def _strftime_now(self, form: str) -> str:
        return self._dates.setdefault(form, strftime_now(form))


class CannotFollow(Exception):
    """The template does something with the messages that only a list can."""


class _Items:
    """What a loop runs over: messages from one on, but as many as there are without it."""

    def __init__(self, rendering: _Rendering, messages: _Messages, start: int) -> None:
        self._rendering = rendering
        self._messages = messages
        self._start = start

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for position, message in self._messages.read_from(self._start):
            self._rendering.come_to(position)
            yield message

    def __len__(self) -> int:
        return len(self._messages)


class _Messages:
    """The messages from `offset` on, as a list; what is read of them is noted."""

    def __init__(self, rendering: _Rendering, offset: int) -> None:
        self._rendering = rendering
        self.offset = offset

    def read_from(self, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
        rendering = self._rendering
        for position in range(start, len(rendering.messages)):
            rendering.num_read = max(rendering.num_read, position + 1)
            yield position, rendering.messages[position]
        rendering.reads_end = True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (message for _, message in self.read_from(self.offset))

    def __getitem__(self, index: Any) -> Any:
        rendering = self._rendering
        if type(index) is int and 0 <= index + self.offset < len(rendering.messages) and index >= 0:
            rendering.num_read = max(rendering.num_read, index + self.offset + 1)
            return rendering.messages[index + self.offset]
        if isinstance(index, slice) and index.stop is None and index.step in (None, 1):
            start = 0 if index.start is None else index.start
            if type(start) is int and start >= 0:
                return _Messages(rendering, self.offset + start)
        return self._as_list()[index]

    def _as_list(self) -> list[dict[str, Any]]:
        self._rendering.reads_end = True
        return self._rendering.messages[self.offset :]

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __len__(self) -> int:
        return len(self._as_list())

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        return iter(self._as_list()[::-1])

    def __contains__(self, item: Any) -> bool:
        return item in self._as_list()

    def __str__(self) -> str:
        return str(self._as_list())

    def _refuse(self, *_: object) -> NoReturn:
        raise CannotFollow("the messages are used as nothing but a list can be")

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()

    __add__ = __radd__ = __mul__ = __rmul__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]  # as a list has none


def _attributes(namespace: Namespace) -> dict[str, Any]:
    """The variables of a namespace, which jinja2 hides from templates."""
    attributes: dict[str, Any] = object.__getattribute__(namespace, "_Namespace__attrs")
    return attributes


def _is_plain(variables: dict[str, Any]) -> bool:
    """Whether nothing in it can change later: texts, numbers, and lists and objects, which the sandbox protects."""
    todo: list[Any] = [variables]
    for count, value in enumerate(todo):
        if count > MAX_KEPT_VALUES:
            return False
        if isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, list | tuple):
            todo += value
        elif not (value is None or isinstance(value, str | int | float)):
            return False
    return True
