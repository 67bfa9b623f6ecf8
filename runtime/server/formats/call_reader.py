"""Reading calls out of an answer: in free text, as its format marks them, or where the whole answer is one call."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from .arguments import JsonArguments, XmlArguments
from .call_formats import CallFormat
from .events import Arguments, Content, OutputReader, num_held


class CallReader(OutputReader):
    """Calls in free text. White space next to a call belongs to neither.

    Args:
        calls: how they are written.
        names: the tools that there are.
        raw_keys: by tool, the parameters that are text, where arguments are XML.
        is_exclusive: the output is calls if it begins with their trigger, else content, whatever is in it.
    """

    def __init__(
        self,
        calls: CallFormat,
        names: Collection[str],
        raw_keys: Mapping[str, frozenset[str]] | None = None,
        *,
        is_exclusive: bool = False,
    ) -> None:
        super().__init__()
        self._calls = calls
        self._raw_keys = raw_keys or {}
        self._marks = marks = calls.marks
        openings = (marks.before_key, calls.end) if marks is not None else ("",)
        self._begins = [(calls.begin(name), opening, name) for name in names for opening in openings]
        self._arguments: JsonArguments | XmlArguments | None = None  # set while inside the arguments
        self._is_after = False  # after the arguments, where the call's end is due
        self._has_content_after_call = False
        self._is_undecided = is_exclusive
        self._is_plain = False  # no call comes any more

    @property
    def in_text(self) -> bool:
        return self._arguments is None and not self._is_after and self._calls.trigger not in self._buffer

    def _step(self, is_last: bool) -> bool:
        if self._is_plain:
            return super()._step(is_last)
        if self._is_after:
            return self._skip_end(is_last)
        if self._arguments is not None:
            return self._read_arguments(self._arguments, is_last)
        trigger = self._calls.trigger
        if self._is_undecided:
            if trigger.startswith(self._buffer) and self._buffer != trigger and not is_last:
                return False
            self._is_undecided, self._is_plain = False, not self._buffer.startswith(trigger)
            return True
        at = self._buffer.find(trigger)
        if at < 0:
            held = 0 if is_last else num_held(self._buffer, trigger)
            certain = self._buffer[: len(self._buffer) - held]
            self._say(len(certain) if is_last else len(certain.rstrip()))
            return False
        space_begin = len(self._buffer[:at].rstrip())
        self._say(space_begin)
        return self._open_call(at - space_begin, is_last)

    def _say(self, end: int) -> None:
        text = self._take(end)
        if self.num_calls and not self._has_content_after_call:
            text = text.lstrip()
        if text:
            self._has_content_after_call = True
            self._events.append(Content(text))

    def _open_call(self, num_spaces: int, is_last: bool) -> bool:
        """Reads what stands before the arguments; the trigger is there, after some white space."""
        text = self._buffer[num_spaces:]
        for begin, opening, name in self._begins:
            if text.startswith(begin + opening):
                self._buffer = text[len(begin) :]
                raw_keys = self._raw_keys.get(name, frozenset())
                self._arguments = XmlArguments(self._marks, raw_keys) if self._marks is not None else JsonArguments()
                self._begin_call(name)
                self._has_content_after_call = False
                return True
        if not is_last and any((begin + opening).startswith(text) for begin, opening, _ in self._begins):
            return False
        self._say(num_spaces + 1)
        return True

    def _read_arguments(self, arguments: JsonArguments | XmlArguments, is_last: bool) -> bool:
        text, self._buffer = arguments.read(self._buffer, is_last=is_last)
        self._say_arguments(text)
        if arguments.is_complete:
            self._arguments, self._is_after = None, True
            self._end_call()
        return arguments.is_complete

    def _skip_end(self, is_last: bool) -> bool:
        end = self._calls.end
        is_begun = end.startswith(self._buffer)
        if is_begun and self._buffer != end and not is_last:
            return False
        self._buffer = "" if is_begun and is_last else self._buffer.removeprefix(end)
        self._is_after = False
        return True


class WholeCallReader(OutputReader):
    """The whole output is the arguments of one known tool."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._arguments = JsonArguments()

    @property
    def in_text(self) -> bool:
        return False

    def _step(self, is_last: bool) -> bool:
        if not self.num_calls:
            self._begin_call(self._name)
        text = self._take(len(self._buffer))
        self._say_arguments(text)
        if not self._arguments.is_complete:
            self._arguments.read(text, is_last=is_last)
            if self._arguments.is_complete:
                self._end_call()
        return False


class CallObjectReader(OutputReader):
    """The whole output is `{"name": …, "arguments": …}`. Cut short, it keeps its text as the arguments."""

    @property
    def in_text(self) -> bool:
        return False

    def _step(self, is_last: bool) -> bool:
        if not is_last:
            return False
        name, arguments, is_whole = "", self._take(len(self._buffer)), False
        try:
            value = json.loads(arguments)
            name = value["name"]
            arguments = json.dumps(value["arguments"], ensure_ascii=False, separators=(",", ":"))
            is_whole = True
        except (ValueError, KeyError, TypeError):
            pass
        self._begin_call(name)
        self._events.append(Arguments(0, arguments))
        if is_whole:
            self._end_call()
        return False
