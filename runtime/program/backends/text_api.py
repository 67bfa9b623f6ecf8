"""What APIs that take text can be asked for, and what not. It knows none of them by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....errors import ProgramError
from ...constrain.spec import ConstraintSpec
from ...request import SamplingParams
from .characters import Characters
from .http_call import HttpClient

WORDS = {"prompt_logprobs_from": "logprob_start_len"}  # as programs say it
NO_SCHEMAS = ("enum", "const", "default", "examples")
_DEFAULTS = SamplingParams()


class TextServer:
    """What backends of such APIs share."""

    def __init__(self, label: str, model_name: str, client: HttpClient) -> None:
        """label: how the user has made this backend, for errors."""
        self._label = label
        self._model = model_name
        self._client = client
        self._tokenizer = Characters()

    @property
    def tokenizer(self) -> Characters:
        return self._tokenizer

    def _lacks(self, what: str) -> ProgramError:
        return ProgramError(f"{self._label}: this API has no way to {what}")


def changed_fields(
    sampling: SamplingParams, known: Iterable[str], namespace: str, adapter: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Fields that are not at their defaults: those of `known`, and the names of the others.

    What is left out is the server's default.
    """
    changed = {name: getattr(sampling, name) for name in SamplingParams.__slots__}
    changed = {name: value for name, value in changed.items() if value != getattr(_DEFAULTS, name)}
    said = {name: changed[name] for name in known if name in changed}
    unknown = sorted(WORDS.get(name, name) for name in changed.keys() - said.keys())
    run = {"namespace": namespace, "adapter": adapter}
    return said, [*unknown, *(name for name, value in run.items() if value)]


def unsaid(constraint: ConstraintSpec) -> str | None:
    """What the caller has stated of a constraint that no such API has a field for."""
    if constraint.resources:
        return "take resources=…; write the documents into the schema's $defs"
    if constraint.whitespace is not None:
        return f"lay JSON out by whitespace={constraint.whitespace!r}; leave it out"
    return None


def closed(schema: Any) -> Any:
    """The schema, whose objects have no keys but those that it names; as `extra_keys="never"` means it."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value if key in NO_SCHEMAS else closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found
