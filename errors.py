"""Every error that phloem raises on purpose, in one tree.

::

    PhloemError
    ├── ConfigError              a setting, flag or folder that cannot work
    ├── ModelError               a checkpoint that cannot be loaded
    ├── EngineStopped            the engine has shut down; nothing more will be computed
    ├── ProgramError             a generation program is written wrongly, or one of its expressions failed
    └── RequestError             this one request cannot be served; others are unharmed
        ├── PromptTooLong        the prompt (or prompt + max_tokens) cannot ever fit
        ├── QueueFull            too many requests are waiting; try again later
        ├── DeadlineExceeded     it has waited longer than its own deadline allows
        └── ConstraintError      what the output was asked to look like cannot be enforced
            ├── InvalidRegex         the pattern is not a regular expression we read
            ├── InvalidSchema        the schema is not a JSON Schema
            ├── InvalidGrammar       the grammar text does not parse
            ├── InvalidStructuralTag the description of tags in free text is not one we read
            ├── UnsupportedSchema    the schema is fine, but cannot be enforced exactly
            ├── EmptyLanguage        nothing at all satisfies the constraint
            └── ConstraintTooLarge   the automaton would exceed its bounds

Every message names the place (a flag, a path, a position, a JSON pointer) and the remedy.
This module knows nothing of the rest of the package; everything may import it.
"""

from __future__ import annotations

from typing import ClassVar

if "." not in __name__:  # Python was started in the repository
    raise ImportError("errors is a part of the package phloem: import phloem.errors")


class PhloemError(Exception):
    """Base of all errors raised on purpose. `str(error)` is fit to be shown to a user."""


class ConfigError(PhloemError):
    """A setting, flag, path or device that cannot work; raised before anything is started."""


class ModelError(PhloemError):
    """A checkpoint folder that cannot be loaded; names the file and the missing or odd entry."""


class EngineStopped(PhloemError):
    """The engine was shut down while, or before, the request ran."""


class ProgramError(PhloemError):
    """A generation program is written wrongly, or one of its expressions has failed.

    The message names the program, the line and the expression; `__cause__` is the failure, if there was one.

    Attributes:
        place: the line in the message, as "file:line"; "" if there is none.
    """

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class RequestError(PhloemError):
    """One request is refused or has failed.

    Attributes:
        code: what the server's errors are told apart by; None: by nothing.
        param: the request field at fault, if one is (`"max_tokens"`, `"response_format"` …).
    """

    code: ClassVar[str | None] = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    @property
    def is_fault(self) -> bool:
        """Whether the request has failed through no fault of its own."""
        return type(self) is RequestError and self.param is None


class PromptTooLong(RequestError):
    """The prompt cannot ever fit the context window or the KV pool; the message has the numbers."""

    code = "context_length_exceeded"


class QueueFull(RequestError):
    """The waiting queue is at its bound; nothing was enqueued."""

    code = "rate_limit_exceeded"


class DeadlineExceeded(RequestError):
    """The request was still waiting when its deadline came; nothing was computed for it."""

    code = "deadline_exceeded"


class ConstraintError(RequestError):
    """The asked-for shape of the output cannot be enforced.

    Attributes:
        pointer: JSON pointer (`"/properties/age/not"`) or position (`"offset 12"`) of the cause; `""` is the whole.
    """

    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, pointer: str = "", param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.pointer = pointer


class InvalidRegex(ConstraintError):
    """The pattern does not parse, or uses a feature that is not regular (a backreference …).

    Attributes:
        is_malformed: it does not parse; otherwise it is a pattern to others, and cannot be enforced.
    """

    code = "invalid_regex"
    is_malformed: bool = True


class InvalidSchema(ConstraintError):
    """The value at `pointer` is not valid JSON Schema."""

    code = "invalid_json_schema"


class InvalidGrammar(ConstraintError):
    """The grammar text does not parse, or names a rule that does not exist."""

    code = "invalid_grammar"


class InvalidStructuralTag(ConstraintError):
    """The value at `pointer` of a structural tag is missing, of the wrong form, or cannot be enforced."""

    code = "invalid_structural_tag"


class UnsupportedSchema(ConstraintError):
    """The keyword at `pointer` is valid but cannot be enforced exactly; nothing is weakened in silence."""

    code = "unsupported_json_schema"


class EmptyLanguage(ConstraintError):
    """No text satisfies the constraint (contradictory bounds, `false` …)."""

    code = "empty_language"


class ConstraintTooLarge(ConstraintError):
    """Building the automaton passed its bound on states, memory or time."""

    code = "constraint_too_large"
