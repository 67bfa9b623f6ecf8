"""Reads one small file of a checkpoint folder, or says in one sentence why it cannot.

`Fields` wraps the object read: every getter checks the type and names file, key and found value when it is odd.
"""

from __future__ import annotations

import json
import reprlib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ModelError

MOST_OF_A_SIZE = (1 << 31) - 1  # of any integer that has no bound of its own
MOST_WIDTH = 1 << 20  # of hidden states, heads, latents and MLPs
MOST_OF_A_NUMBER = 1e30  # fp32 has its square roots and reciprocals
MAX_BYTES = 64 << 20  # tokenizer_config.json with 100,000 added tokens is 20 MB; configs are kilobytes


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises ModelError: missing, unreadable, too large, broken, or not an object."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise ModelError(f"{path}: broken JSON at {place} ({error.msg}); download the file again") from None
    except RecursionError:
        raise ModelError(f"{path}: nested too deeply to be a configuration file") from None
    except ValueError as error:  # a number of thousands of digits
        raise ModelError(f"{path}: broken JSON ({error}); download the file again") from None
    if "\\ud" in text.lower() and not _is_utf8(value):
        raise ModelError(f"{path}: a string has a lone surrogate; download the file again")
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def read_text(path: Path) -> str:
    """The UTF-8 text in `path`. Raises ModelError as `read_bytes` does, or if it is none."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: cannot be read ({error})") from None


def read_bytes(path: Path) -> bytes:
    """What is in `path`. Raises ModelError: missing, unreadable, too large, or no regular file (a pipe never ends)."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path}: is no regular file")
        if status.st_size > MAX_BYTES:
            raise ModelError(f"{path}: larger than {MAX_BYTES >> 20} MiB; this is not a configuration file")
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file; the checkpoint folder must contain it") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_OF_A_NUMBER


def _is_utf8(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


class Fields:
    """Typed look-ups in one JSON object; `null` counts as absent."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self.values = values
        self.place = place

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None, *, at_least: int = 1, at_most: int = MOST_OF_A_SIZE) -> int:
        value = self._get(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise self.odd(key, f"an integer of at least {at_least}")
        if value > at_most:
            raise self.odd(key, f"an integer of at most {at_most}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < MOST_OF_A_NUMBER:
            raise self.odd(key, f"a number above {above:g} and below {MOST_OF_A_NUMBER:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.odd(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.odd(key, "a string")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self._get(key, None)
        if not isinstance(value, list) or not all(map(_is_number, value)):
            raise self.odd(key, "a list of numbers")
        return tuple(map(float, value))

    def ids(self, key: str) -> tuple[int, ...]:
        """Token ids written as one integer or a list; () when absent."""
        value = self.values.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if any(isinstance(x, bool) or not isinstance(x, int) or abs(x) > MOST_OF_A_SIZE for x in ids):
            raise self.odd(key, "a token id or a list of token ids")
        return tuple(ids)

    def renamed(self, aliases: Iterable[tuple[str, str]]) -> Fields:
        """With the values of some keys under others besides, theirs first, ours second."""
        found = {ours: self.values[theirs] for theirs, ours in aliases if theirs in self}
        return Fields({**self.values, **found}, self.place)

    def section(self, key: str) -> Fields:
        """The object under `key`; an empty one when absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.odd(key, "an object")
        return Fields(value or {}, f"{self.place}: {key}")

    def odd(self, key: str, expected: str) -> ModelError:
        found = "nothing" if key not in self else _SHORT.repr(self.values[key])[:80]
        return ModelError(f"{self.place}: {key}: expected {expected}, found {found}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value
