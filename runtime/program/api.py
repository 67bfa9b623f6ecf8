"""The words of the DSL: functions that make expressions. Names, defaults and meaning follow SGLang's frontend.

Arguments are checked here, on the line that states them. Nothing runs until the expression is appended to a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from ...errors import ProgramError, RequestError
from ..constrain import spec as constraint_spec
from ..constrain.compiling import check_spec
from ..constrain.python_type import is_python_type
from ..constrain.spec import ConstraintSpec
from ..request import SamplingParams
from .choices import ChoicesMethod, MethodName, token_length_normalized
from .expression import Expression, Gen, Role, RoleBegin, RoleEnd, Select, concat
from .place import label, place_of_caller

# A number may be followed by one blank: models write it before they go on, and the stop strings take it away again.
DTYPE_PATTERNS: Mapping[type, str] = MappingProxyType(
    {
        int: r"[-+]?[0-9]+[ \n]?",
        float: r"[-+]?([0-9]+(\.[0-9]+)?|\.[0-9]+)[ \n]?",
        bool: r"(True|False)",
        str: r'"[^"\n\\]*"',
    }
)
NUMBER_STOPS = (" ", "\n")


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    logprobs: int | None = None,
    seed: int | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    constraint: ConstraintSpec | None = None,
    type: Any = None,
    return_logprob: bool | None = None,
    top_logprobs_num: int | None = None,
    logprob_start_len: int | None = None,
    return_text_in_logprobs: bool | None = None,
) -> Expression:
    """Text written by the model, stored as `s[name]`.

    Sampling arguments left at None take the value given to `run`; they mean what they mean in `SamplingParams`.

    Args:
        n: how many outputs; `s[name]` is then a list, and the state goes on with the first.
        logprobs: report log-probabilities in `s.get_meta_info(name)`, with this many alternatives.
        dtype: int, float, bool or str: the text is a literal of that type. `s[name]` stays text;
            `s.parsed(name)` is the value.
        choices: pick the likeliest of these texts; the same as `select`.
        regex: the whole output matches this pattern.
        json_schema: the output is JSON valid under this schema, or of this type (see `phloem.json_schema`);
            `s.parsed(name)` is the value.
        constraint: any constraint made with `phloem.regex`, `choice`, `json_schema`, `grammar` …
        type: as `json_schema` of this type (a pydantic class, `list[Person]` …), but `s[name]` itself is the value; the
            expression fails if the output is none.
        return_logprob, top_logprobs_num: SGLang's way to ask for `logprobs`.
        logprob_start_len: also those of the text so far, from the token at this position on (the first has none); with
            `max_tokens=0` nothing else. -1: none of them.
        return_text_in_logprobs: each has its text anyway.

    Raises:
        ProgramError: two constraints at once, or an argument that is none or out of range.
        ConstraintError: the pattern, schema or other constraint is not well formed, or nothing satisfies it.
    """
    if choices is not None:
        _exclusive(choices=choices, dtype=dtype, regex=regex, json_schema=json_schema, constraint=constraint, type=type)
        return select(name, choices, temperature or 0.0, choices_method or token_length_normalized)
    if choices_method is not None:
        raise ProgramError("gen: choices_method needs choices")
    kind = _dtype(dtype)
    if kind in (int, float):
        stop = (*_strings("stop", stop), *NUMBER_STOPS)
    constraint = _constraint(kind, dtype, regex, json_schema, constraint, type)
    given = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "n": n,
        "stop": None if stop is None else _strings("stop", stop),
        "stop_token_ids": None if stop_token_ids is None else tuple(stop_token_ids),
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "ignore_eos": ignore_eos,
        **logprobs_asked(logprobs, return_logprob, top_logprobs_num, logprob_start_len),
        "seed": seed,
    }
    atom = Gen(
        _name("gen", name),
        MappingProxyType({key: value for key, value in given.items() if value is not None}),
        constraint,
        kind,
        type is not None,
    )
    _check_sampling(atom)
    return atom


def _constraint(
    kind: type | None, dtype: type | str | None, regex: str | None, json_schema: Any, constraint: Any, of_type: Any
) -> ConstraintSpec | None:
    """That of a `gen`, however it is said. Raises as `gen` does."""
    _exclusive(dtype=dtype, regex=regex, json_schema=json_schema, constraint=constraint, type=of_type)
    if kind is not None:
        return constraint_spec.regex(DTYPE_PATTERNS[kind])
    if regex is not None:
        constraint = constraint_spec.regex(regex)
    elif json_schema is not None:
        constraint = constraint_spec.json_schema(json_schema)
    elif of_type is not None:
        constraint = _of_type(of_type)
    if constraint is None:
        return None
    if not isinstance(constraint, ConstraintSpec):
        raise ProgramError(f"gen: {constraint_spec.not_a_spec(constraint)}")
    check_spec(constraint)
    return constraint


def gen_int(name: str | None = None, **arguments: Any) -> Expression:
    """`gen` of an integer literal."""
    return gen(name, dtype=int, **arguments)


def gen_string(name: str | None = None, **arguments: Any) -> Expression:
    """`gen` of a text in double quotes."""
    return gen(name, dtype=str, **arguments)


def select(
    name: str | None = None,
    choices: Sequence[str] = (),
    temperature: float = 0.0,
    choices_method: ChoicesMethod = token_length_normalized,
) -> Expression:
    """The likeliest of `choices` after the text so far, appended and stored as `s[name]`.

    Raises:
        ProgramError: no choices, an empty one, or a temperature: likelihoods are compared, nothing is sampled.
    """
    found = _strings("choices", choices)
    if not found:
        raise ProgramError("select: choices: give at least one text")
    if any(not choice for choice in found):
        raise ProgramError("select: choices: an empty text has no likelihood; remove it")
    if temperature > 1e-5:
        raise ProgramError(
            f"select: temperature: {temperature} given, but choices are compared, not sampled;"
            " use gen(constraint=phloem.choice([...])) to sample one"
        )
    if not isinstance(choices_method, ChoicesMethod):
        known = ", ".join(f"phloem.{name}" for name in get_args(MethodName))
        raise ProgramError(f"select: choices_method: {choices_method!r} is not one of {known}")
    return Select(_name("select", name), found, choices_method)


def system(expression: Expression | str = "") -> Expression:
    """A whole system message; without an argument an empty one."""
    return _message("system", expression)


def user(expression: Expression | str = "") -> Expression:
    """A whole user message."""
    return _message("user", expression)


def assistant(expression: Expression | str = "") -> Expression:
    """A whole assistant message; usually with a `gen` inside."""
    return _message("assistant", expression)


def system_begin() -> Expression:
    """Opens a system message."""
    return RoleBegin("system")


def system_end() -> Expression:
    """Closes the system message."""
    return RoleEnd("system")


def user_begin() -> Expression:
    """Opens a user message."""
    return RoleBegin("user")


def user_end() -> Expression:
    """Closes the user message."""
    return RoleEnd("user")


def assistant_begin() -> Expression:
    """Opens an assistant message."""
    return RoleBegin("assistant")


def assistant_end() -> Expression:
    """Closes the assistant message."""
    return RoleEnd("assistant")


def logprobs_asked(
    logprobs: int | None, return_logprob: bool | None, top_logprobs_num: int | None, logprob_start_len: int | None
) -> dict[str, int | None]:
    """The fields of `SamplingParams` for log-probabilities, however they were asked for."""
    if logprobs is None and (return_logprob or top_logprobs_num):
        logprobs = top_logprobs_num or 0
    if logprob_start_len is None or logprob_start_len == -1:
        return {"logprobs": logprobs}
    if isinstance(logprob_start_len, bool) or not isinstance(logprob_start_len, int) or logprob_start_len < 0:
        raise ProgramError(
            f"logprob_start_len: expected a position in the text so far, or -1; got {logprob_start_len!r}"
        )
    return {"logprobs": logprobs or 0, "prompt_logprobs_from": max(1, logprob_start_len)}


def _message(role: Role, expression: Expression | str) -> Expression:
    return concat(RoleBegin(role), expression, RoleEnd(role))


def _of_type(kind: Any) -> ConstraintSpec:
    if not is_python_type(kind):
        raise ProgramError(f"gen: type: expected a type such as a pydantic class or list[int], got {kind!r}")
    return constraint_spec.json_schema(kind)


def _dtype(dtype: type | str | None) -> type | None:
    if dtype is None:
        return None
    for known in DTYPE_PATTERNS:
        if dtype is known or dtype == known.__name__:
            return known
    raise ProgramError(f"gen: dtype: {dtype!r} is not one of int, float, bool, str")


def _check_sampling(atom: Gen) -> None:
    """Raises ProgramError if an argument is out of range, whatever the run's others are."""
    try:
        SamplingParams(**{"max_tokens": None, **atom.sampling})  # type: ignore[arg-type]  # names and types from `gen`
    except RequestError as error:
        place = place_of_caller()
        raise ProgramError(f"{place}, {label(atom)}: {error}", place=str(place)) from error


def _exclusive(**constraints: object) -> None:
    given = [name for name, value in constraints.items() if value is not None]
    if len(given) > 1:
        raise ProgramError(f"gen: {' and '.join(given)} exclude each other; give one of them")


def _strings(param: str, value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        if param == "choices":
            raise ProgramError(f"select: choices: expected a list of texts, got the text {value!r}")
        return (value,)
    found = tuple(value)
    for item in found:
        if not isinstance(item, str):
            raise ProgramError(f"{param}: {item!r} is not text")
    return found


def _name(word: str, name: object) -> str | None:
    if name is not None and not isinstance(name, str):
        raise ProgramError(f"{word}: name: expected text, got {name!r}")
    return name
