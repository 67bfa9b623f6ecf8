"""What conversations rendered to, so that their next turn renders only what is new in it.

A tree of messages, as the prefix cache is a tree of tokens: a path is a conversation, and conversations that begin
alike share it. A message's node keeps how the template sees the message, and the template's checkpoint before it (see
`resumable_template`), with what was written since the checkpoint of the message before::

    settings ── system ── user 1 ── assistant 1 ── user 2        the conversation as it was rendered last
                  │                            └── user 2'        edited: all before it is still good
                  └────── user 9 …                               another one under the same system message

    user 2 with [assistant 2] [user 3]:  text up to user 2 from the tree; user 2 and what follows is rendered

Exact: what comes out is what `ChatTemplate.render` gives. Messages count as the same only if they are, to the type and
order of everything in them, under the same namespace, tools and options. Templates that have no checkpoints, messages
that have to be cut with unusual markers, and whatever goes wrong are left to `ChatTemplate.render`.

Bounded in bytes, least recently used first; a node goes after all that follow it. Thread-safe: rendering itself is done
outside the lock. Cost: one look-up per earlier message, and rendering the last of them and the new ones.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from .chat_message import USUAL_CUT, has_markers
from .chat_template import ChatTemplate
from .resumable_template import Checkpoint, ResumableTemplate

MAX_BYTES = 16 << 20
NODE_BYTES = 1000  # objects and tables


class RenderMemory:
    """Renders the conversations of one template."""

    def __init__(self, template: ChatTemplate, max_bytes: int = MAX_BYTES) -> None:
        self._template = template
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._top = _Node(None, "", {}, 0)
        self._nodes: OrderedDict[_Node, None] = OrderedDict()  # those that follow a node come before it

    @property
    def num_bytes(self) -> int:
        """Memory of what is remembered, about; at most `max_bytes`."""
        return self._num_bytes

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """The pieces that `ChatTemplate.render` would give; see there."""
        template = self._template.resumable
        pieces = None
        if template is not None and not continue_final:
            settings = _key([namespace, add_generation_prompt, tools, options])
            keys = [_message_key(message) for message in messages]
            if settings is not None and keys and None not in keys:
                pieces = self._render(template, messages, keys, settings, add_generation_prompt, tools, options)
        if pieces is not None:
            return pieces
        return self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final=continue_final,
            tools=tools,
            options=options,
        )

    def _render(
        self,
        template: ResumableTemplate,
        messages: Sequence[Mapping[str, Any]],
        keys: Sequence[Hashable],
        settings: Hashable,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None,
    ) -> list[str] | None:
        """None if the template has to be asked for all of it."""
        all_keys = [settings, *keys]
        path = self._known(all_keys)
        shown = [node.shown for node in path]
        try:
            if not shown:
                if has_markers([tools, options]):
                    return None
                shown.append(
                    self._template.context(
                        USUAL_CUT,
                        add_generation_prompt=add_generation_prompt,
                        continue_final=False,
                        tools=tools,
                        options=options,
                    )
                )
            for message in messages[len(shown) - 1 :]:
                new = self._template.shown(message)
                if new is None:
                    return None
                shown.append(new)
            start, at, begin = _latest_checkpoint(path)
            num_chars = (path[-1].num_chars if path else 0) + sum(map(_num_chars, all_keys[len(path) :]))
            room = self._template.max_chars(num_chars) - len(begin)
            text, checkpoints = template.render(shown[0], shown[1:], start, at, room)
        except Exception:  # the template itself, asked for all of it, says what is wrong
            return None
        self._keep(path, all_keys, shown, checkpoints)
        return (begin + text).split(USUAL_CUT)

    def _known(self, keys: Sequence[Hashable]) -> list[_Node]:
        """Nodes of the settings and of as many messages as are known."""
        path: list[_Node] = []
        with self._lock:
            following = self._top.following
            for key in keys:
                node = following.get(key)
                if node is None:
                    break
                path.append(node)
                following = node.following
        return path

    def _keep(
        self,
        path: list[_Node],
        keys: Sequence[Hashable],
        shown: Sequence[dict[str, Any]],
        checkpoints: Mapping[int, Checkpoint],
    ) -> None:
        """Puts down the checkpoints that are new, and the messages up to the last of them."""
        with self._lock:
            if path and path[-1] not in self._nodes:
                return  # it went in the meantime
            node = path[-1] if path else self._top
            for index in range(len(path), max(checkpoints, default=-1) + 2):
                known = node.following.get(keys[index])  # by somebody else, in the meantime
                node = known or self._add(node, keys[index], shown[index])
                path.append(node)
            for position, checkpoint in checkpoints.items():
                node = path[position + 1]
                self._num_bytes += checkpoint.num_bytes - node.checkpoint_bytes
                node.checkpoint, node.checkpoint_bytes = checkpoint, checkpoint.num_bytes
            for node in reversed(path):
                self._nodes.move_to_end(node)
            while self._num_bytes > self._max_bytes:
                oldest, _ = self._nodes.popitem(last=False)
                assert oldest.before is not None and not oldest.following
                del oldest.before.following[oldest.key]
                self._num_bytes -= oldest.num_bytes + oldest.checkpoint_bytes

    def _add(self, before: _Node, key: Hashable, shown: dict[str, Any]) -> _Node:
        node = _Node(before, key, shown, before.num_chars + _num_chars(key))
        before.following[key] = node
        self._nodes[node] = None
        self._num_bytes += node.num_bytes
        return node


class _Node:
    """A message, or the settings, after those before it.

    Attributes:
        shown: how the template sees it; the template's other variables for settings.
        num_chars: of all keys until here.
        num_bytes: without the checkpoint.
    """

    __slots__ = ("before", "checkpoint", "checkpoint_bytes", "following", "key", "num_bytes", "num_chars", "shown")

    def __init__(self, before: _Node | None, key: Hashable, shown: dict[str, Any], num_chars: int) -> None:
        self.before = before
        self.key = key
        self.shown = shown
        self.num_chars = num_chars
        self.num_bytes = NODE_BYTES + 6 * _num_chars(key)
        self.following: dict[Hashable, _Node] = {}
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_bytes = 0


def _latest_checkpoint(path: Sequence[_Node]) -> tuple[int, Checkpoint | None, str]:
    """Before which message the template can go on, from where, and what it has written until then.

    The path begins with the settings.
    """
    texts: list[str] = []
    found: tuple[int, Checkpoint | None, int] = 0, None, 0
    num_chars = 0
    for position, node in enumerate(path, -1):
        checkpoint = node.checkpoint
        if checkpoint is None:
            continue  # the loop begins later: with the message behind the system's, say
        texts.append(checkpoint.text)
        num_chars += len(checkpoint.text)
        if num_chars != checkpoint.end or (checkpoint.dates and not checkpoint.is_of_today):
            break
        if checkpoint.namespaces is not None:
            found = position, checkpoint, len(texts)
    start, at, num_texts = found
    return start, at, "".join(texts[:num_texts])


def _message_key(message: object) -> Hashable | None:
    """What tells a message from any other; None if it is nothing that JSON has."""
    if type(message) is dict and len(message) == 2:
        role, content = message.get("role"), message.get("content")
        if type(role) is str and type(content) is str:  # nearly always
            return role, content
    return _key(message)


def _key(value: object) -> str | None:
    """JSON tells nothing of types that look alike in it (1 and True as names), `repr` nothing of foreign objects."""
    try:
        return json.dumps(value, ensure_ascii=False) + repr(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _num_chars(key: Hashable) -> int:
    return len(key) if isinstance(key, str) else len(key[0]) + len(key[1]) if isinstance(key, tuple) else 0
