"""Python data that are to be written out as JSON: no text is begun that would have no end, or none within reason.

A dict or a list that occurs twice in JSON data is written twice. JSON text that was read never has such parts; data
made by hand, or by a library, may, and then a few lines of Python are more text than there is memory for::

    d = {}
    for _ in range(30):
        d = {"allOf": [d, d]}       30 dicts, a text of 16 billion characters

So data are looked at before they are written out. What has no such parts is never refused here, however large it is.
Ordinary data, of some hundreds of values, are walked through as if they were written; only where they turn out to be
more, parts are distinguished by their identity, and every part is looked at once.

Knows JSON data and nothing else; everything may import it.
"""

from __future__ import annotations

if "." not in __name__:  # Python was started in the repository
    raise ImportError("json_size is a part of the package phloem: import phloem.json_size")

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import ConstraintError, ConstraintTooLarge

MAX_SHARED_TEXT = 4 << 20
"""Most characters that data with a part that occurs more than once may have when they are written out."""

_MANY = 10_000
"""At most this many values are walked through as they come."""
_DEEP = 100
"""And at most this many levels."""
_HOLD_MORE = frozenset((dict, list, tuple, set, frozenset))
_HOLD_NONE = frozenset((str, int, float, bool, type(None)))
_MORE = (Mapping, list, tuple, set, frozenset)


def check_json_size(
    data: object, what: str, invalid: type[ConstraintError], *, param: str | None = None, max_text: int | None = None
) -> None:
    """Refuses data that contain themselves, or that are far more text than they look like.

    Args:
        what: the data are called in messages.
        invalid: raised if they contain themselves.
        param: of the error.
        max_text: most characters of the text; what is certain to have more is refused before it is written. None: any.

    Raises:
        ConstraintTooLarge: parts of them occur so often that their text is longer than `MAX_SHARED_TEXT`, or the text
            is longer than `max_text`.
    """
    least = _least_text(data)
    if least is None:
        least = _check_parts(data, what, invalid, param)
    if max_text is not None and least > max_text:
        message = f"the {what} has more than {max_text} characters as JSON text; make it smaller"
        raise ConstraintTooLarge(message, param=param)


def _least_text(data: object) -> int | None:
    """A lower bound on the number of characters of the data's text, if that is large: 0 for a few values.

    None: a part of them may occur twice on one level. Growth beyond all bounds has to pass such a level.
    """
    level: list[Any] = [data]
    num_values = least = 0
    for _ in range(_DEEP):
        if not _HOLD_MORE.issuperset(map(type, level)):
            return None
        num_values += sum(map(len, level))
        if num_values > _MANY and len(set(map(id, level))) < len(level):
            return None
        below: list[Any] = []
        for item in level:
            below += item.values() if type(item) is dict else item
        if num_values > _MANY:
            least += _least_len(level, below)
        level = [item for item in below if type(item) not in _HOLD_NONE]
        if not level:
            return least
    return None


def _least_len(level: list[Any], below: list[Any]) -> int:
    """A lower bound on the number of characters of these containers and their items; containers in them count as empty.

    With `json.dumps`' separators: a comma and a space for each value (the first one's are the brackets), and for keys
    two quotes, a colon and a space.
    """
    keys = [len(key) + 4 for item in level if type(item) is dict for key in item if type(key) is str]
    values = [len(item) + 2 if type(item) is str else type(item) in _HOLD_NONE for item in below]
    return sum(keys) + sum(values) + 2 * len(below)


def _check_parts(data: object, what: str, invalid: type[ConstraintError], param: str | None) -> int:
    """Looks at every part once, innermost first, and adds up how long the texts are, at the least: that of all."""
    if not isinstance(data, _MORE):
        return 0
    path = [_Part("", data)]
    open_at = {id(data): path[0]}
    lens: dict[int, int] = {}  # of parts that were looked at, by their identity
    is_shared = False

    while path:
        part = path[-1]
        token, item = next(part.inner, ("", None))
        if item is None:
            if is_shared and part.text_len > MAX_SHARED_TEXT:
                place = _pointer(path)
                message = (
                    f"{_shown(place)}: written out, this has more than {MAX_SHARED_TEXT} characters, since parts of "
                    f"the {what} occur in it again and again; put them under $defs and refer to them by $ref"
                )
                raise ConstraintTooLarge(message, pointer=place, param=param)
            lens[id(part.item)] = part.text_len
            del open_at[id(part.item)]
            path.pop()
            if path:
                path[-1].text_len += part.text_len
        elif id(item) in lens:
            is_shared = True
            part.text_len += lens[id(item)]
        elif id(item) in open_at:
            place = _pointer([*path, _Part(token, ())])
            outer = _pointer(path[: path.index(open_at[id(item)]) + 1])
            message = (
                f"{_shown(place)}: the {what} contains itself: this is {_shown(outer)} once more; where values nest "
                "in values of their kind, put these under $defs and refer to them by $ref"
            )
            raise invalid(message, pointer=place, param=param)
        else:
            path.append(_Part(token, item))
            open_at[id(item)] = path[-1]
    return lens[id(data)]


class _Part:
    """A dict or a list that is being looked at: those in it that are still to come, and what was counted so far."""

    __slots__ = ("inner", "item", "text_len", "token")

    def __init__(self, token: str, item: Any) -> None:
        self.token = token
        self.item = item
        self.text_len = 1 + max(len(item), 1)  # the brackets, and commas
        if isinstance(item, Mapping):
            self.text_len += sum([len(key) + 3 for key in item if isinstance(key, str)])
        parts = list(item.items() if isinstance(item, Mapping) else enumerate(item))
        inner = [(str(name), value) for name, value in parts if isinstance(value, _MORE)]
        texts = [len(value) + 1 for _, value in parts if isinstance(value, str)]
        self.text_len += sum(texts) + len(parts) - len(inner)
        self.inner: Iterator[tuple[str, object]] = iter(inner)


def _pointer(path: list[_Part]) -> str:
    return "".join([f"/{part.token.replace('~', '~0').replace('/', '~1')}" for part in path[1:]])


def _shown(pointer: str) -> str:
    return pointer if 0 < len(pointer) <= 200 else f"{pointer[:80]} … {pointer[-100:]}" if pointer else "/"
