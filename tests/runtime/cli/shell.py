"""Commands run in this process, and what they are given."""

from __future__ import annotations

import pytest

from phloem.runtime.cli import run

PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "maximum": 999}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DOCUMENT = "Tarvin Ledmo is 42 years old and lives in Quolsat. Tarvin is a baker."


class Shell:
    """Runs commands in this process; `out` and `err` are what the last one printed."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        code = run(arguments)
        self.out, self.err = self._capture.readouterr()
        assert "Traceback" not in self.err
        return code
