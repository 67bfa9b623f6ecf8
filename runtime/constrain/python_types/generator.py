"""The JSON Schema of what pydantic reads: no more than its validators take, and no less than it writes itself.

Pydantic turns a type into a *core schema*; its own generator turns that into a JSON Schema, one method for each kind of
core schema. The methods here say more, with keywords that are enforced exactly. What cannot be said is marked, and so
refused with its place, rather than weakened. Functions of pydantic and pydantic-extra-types: see `known`.

Not known, and so left to `parsed`: validators of the user's own (`AfterValidator`, `field_validator`, `Predicate` …).
A schema that a user gives (`WithJsonSchema`, `json_schema_extra`) is taken at its word.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AnyUrl
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from . import times
from .decimals import bounds_of_floats, decimal, fraction, text_of
from .forms import ASCII, as_key, no_value, refused, text, within_bytes
from .functions import form_of, limited, says_less, taken_by
from .known import FORMS, THROUGH, function_of, name_of
from .patterns import pattern_or_refusal
from .ranges import whole
from .urls import url

_NUMBER = r"[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,2})?"
_COMPLEX = rf"-?{_NUMBER}j?|-?{_NUMBER}[+-]{_NUMBER}j"
_FLOAT_KEY = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?"
_PYTHON_ONLY = ("is-instance", "is-subclass", "callable")
_WITHOUT_JSON = "this type takes Python objects alone, and no JSON; leave it out of what a model writes"
_JSON_TYPES: dict[str, type] = {"null": type(None), "boolean": bool, "number": float, "string": str}
_MOST_FLAGS = 1024


class NarrowSchema(GenerateJsonSchema):
    """Pydantic's generator, with schemas as narrow as its validators."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012
    is_key = False
    """Whether the schema of an object's keys is made: text that is read as a number is text there."""
    shared: Mapping[str, Any] = {}
    """Core schemas by their names."""

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaValue:
        """The whole, with types that cannot be enforced marked (`forms.REFUSED`)."""
        self.shared = {each["ref"]: each for each in schema.get("definitions", ())}
        return super().generate(schema, mode)

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Without the functions with which pydantic's own types describe themselves: these say less."""
        metadata = schema.get("metadata") or {}
        for name in ("pydantic_js_functions", "pydantic_js_annotation_functions"):
            if own := [function for function in metadata.get(name, ()) if says_less(function)]:
                kept = [function for function in metadata[name] if function not in own]
                metadata = {**metadata, name: kept}
                schema = {**schema, "metadata": metadata}
        if self.is_key and "ref" in schema:
            schema = {name: value for name, value in schema.items() if name != "ref"}
        return super().generate_inner(schema)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        """Marked, where pydantic would raise without a place."""
        return refused(f"pydantic has no JSON Schema for it ({error_info}); say one with pydantic.WithJsonSchema")

    # ---------------------------------------------------------------- numbers

    def int_schema(self, schema: Any) -> JsonSchemaValue:
        """As a key its digits, without a sign or zeros too many."""
        if not self.is_key:
            return super().int_schema(schema)
        if "multiple_of" in schema:
            return refused("a multiple_of of keys cannot be enforced; leave it out")
        low, high = times.interval(schema, lambda bound: bound, None, None)
        is_empty = low is not None and high is not None and low > high
        return no_value("number", schema) if is_empty else text(whole(low, high))

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        """Without infinities, but where they are written as strings."""
        if self.is_key:
            if "multiple_of" in schema:
                return refused("a multiple_of of keys cannot be enforced; leave it out")
            bounds = bounds_of_floats(schema)
            return text_of(bounds, None, None) if bounds else text(_FLOAT_KEY)
        form = super().float_schema(schema)
        is_text = self._config.ser_json_inf_nan == "strings" and form == {"type": "number"}
        return {"anyOf": [form, {"enum": ["Infinity", "-Infinity", "NaN"]}]} if is_text else form

    def bool_schema(self, schema: Any) -> JsonSchemaValue:
        """`true` and `false`, also as keys."""
        return {"enum": ["true", "false"]} if self.is_key else super().bool_schema(schema)

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        """A number, or its digits as text."""
        return decimal(schema, is_key=self.is_key)

    def fraction_schema(self, schema: Any) -> JsonSchemaValue:
        """`3/4`, or a number."""
        return fraction(schema, is_key=self.is_key)

    def complex_schema(self, schema: Any) -> JsonSchemaValue:
        """Python's way of writing it, without brackets."""
        return text(_COMPLEX)

    # ---------------------------------------------------------------- text

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        """With the lengths of the model's configuration, and with the flags of a pattern."""
        config = self._config
        form: JsonSchemaValue = {"type": "string"}
        if least := schema.get("min_length", config.str_min_length):
            form["minLength"] = least
        if (most := schema.get("max_length", config.str_max_length)) is not None:
            form["maxLength"] = most
        engine = schema.get("regex_engine", config.regex_engine)
        patterns = [pattern_or_refusal(schema["pattern"], engine)] if "pattern" in schema else []
        if schema.get("strip_whitespace", config.str_strip_whitespace):
            patterns.append({"pattern": r"^(\S([\s\S]*\S)?)?$"})
        if schema.get("ascii_only"):
            patterns.append({"pattern": ASCII})
        return {**form, **patterns[0]} if len(patterns) == 1 else {**form, "allOf": patterns} if patterns else form

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """UTF-8, whose bytes are counted, or what the configuration says that bytes are written as."""
        least, most, written = schema.get("min_length", 0), schema.get("max_length"), self._config.val_json_bytes
        if written == "hex":
            return text(f"([0-9a-f]{{2}}){{{least},{'' if most is None else most}}}")
        if written == "base64":
            is_counted = least or most is not None
            form = text(r"([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?")
            return refused("bytes in Base64 cannot be counted; leave out their lengths") if is_counted else form
        form = {"type": "string", "minLength": least} if least else {"type": "string"}
        return form if most is None else within_bytes(form, most)

    def uuid_schema(self, schema: Any) -> JsonSchemaValue:
        """Of its version; any where none is asked for."""
        version = schema.get("version")
        if version is None:
            return {"type": "string", "format": "uuid"}
        return text(f"[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}")

    def url_schema(self, schema: Any) -> JsonSchemaValue:
        """See `urls`."""
        return self._url(schema, has_many_hosts=False)

    def multi_host_url_schema(self, schema: Any) -> JsonSchemaValue:
        """See `urls`."""
        return self._url(schema, has_many_hosts=True)

    def _url(self, schema: Any, *, has_many_hosts: bool) -> JsonSchemaValue:
        if self.is_key and AnyUrl.__hash__ is None:  # before pydantic 2.11
            return refused("URLs are no keys of a dict in this version of pydantic; use str")
        return url(schema, has_many_hosts=has_many_hosts, is_key=self.is_key)

    def json_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused."""
        return refused("`Json[...]` is JSON inside of a string; use the type inside of Json[...] itself")

    # ---------------------------------------------------------------- times

    def date_schema(self, schema: Any) -> JsonSchemaValue:
        """See `times`."""
        return times.date(schema)

    def time_schema(self, schema: Any) -> JsonSchemaValue:
        """See `times`."""
        return times.time(schema)

    def datetime_schema(self, schema: Any) -> JsonSchemaValue:
        """See `times`."""
        return times.datetime(schema)

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:
        """See `times`."""
        if self._config.ser_json_timedelta == "float" and not self.is_key:
            return {"anyOf": [{"type": "number", **times.seconds(schema)}, times.timedelta(schema)]}
        return times.timedelta(schema)

    # ---------------------------------------------------------------- constants

    def literal_schema(self, schema: Any) -> JsonSchemaValue:
        """Those values that JSON can say and pydantic takes back."""
        return self._taken(schema, super().literal_schema(schema))

    def enum_schema(self, schema: Any) -> JsonSchemaValue:
        """Those values that JSON can say and pydantic takes back; of flags also what they make together."""
        form = super().enum_schema(schema)
        if issubclass(schema["cls"], enum.Flag):
            every = 0
            for member in schema["members"]:
                every |= member.value
            if every >= _MOST_FLAGS:
                return refused(f"flags beyond {_MOST_FLAGS - 1} are too many values; use a list of an Enum")
            form = {"enum": list(range(every + 1))}
        return self._taken(schema, form)

    def _taken(self, schema: Any, form: JsonSchemaValue) -> JsonSchemaValue:
        values = form["enum"] if "enum" in form else [form["const"]]
        schema = {name: value for name, value in schema.items() if name not in ("ref", "serialization")}
        if not self.is_key:
            takes = taken_by(schema)
            values = [value for value in values if takes(value)]
        else:
            takes = taken_by(core_schema.dict_schema(schema))
            values = [str(value) for value in values if takes({str(value): None})]
        if not values:
            return refused("no value of it can be read from JSON")
        said = {"const": values[0]} if len(values) == 1 and "const" in form else {"enum": values}
        others = {name: value for name, value in form.items() if name not in ("enum", "const")}
        return said if self.is_key else {**others, **said}

    # ---------------------------------------------------------------- objects

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Keys as texts that are read as keys of the type."""
        return self._common_dict_schema(schema)

    def _common_dict_schema(self, schema: Any) -> JsonSchemaValue:
        form: JsonSchemaValue = {"type": "object"}
        values = self.generate_inner(schema["values_schema"]) if "values_schema" in schema else {}
        form["additionalProperties"] = values or True
        if "keys_schema" in schema:
            outside, self.is_key = self.is_key, True
            try:
                keys = as_key(self.generate_inner(schema["keys_schema"]))
            finally:
                self.is_key = outside
            if keys is None:
                return refused("keys of this type are no text in JSON; use str keys, or a list of pairs")
            if keys not in ({}, {"type": "string"}):
                form["propertyNames"] = keys
        self.update_with_validations(form, schema, self.ValidationsMapping.object)
        return form

    def model_field_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused where it is found below a path alone."""
        return self._if_named(schema) or super().model_field_schema(schema)

    def dataclass_field_schema(self, schema: Any) -> JsonSchemaValue:
        """The same."""
        return self._if_named(schema) or super().dataclass_field_schema(schema)

    def typed_dict_field_schema(self, schema: Any) -> JsonSchemaValue:
        """The same."""
        return self._if_named(schema) or super().typed_dict_field_schema(schema)

    def _if_named(self, schema: Any) -> JsonSchemaValue | None:
        alias, config = schema.get("validation_alias"), self._config
        if not isinstance(alias, list) or getattr(config, "validate_by_name", None) or config.populate_by_name:
            return None
        if any(isinstance(path, list) and len(path) == 1 and isinstance(path[0], str) for path in alias):
            return None
        return refused("an AliasPath has no key of its own; give it another alias with AliasChoices")

    def field_is_required(self, field: Any, total: bool) -> bool:
        """What `__init__` does not take need not be there."""
        return field.get("init") is not False and super().field_is_required(field, total)

    # ---------------------------------------------------------------- what goes through functions

    def function_after_schema(self, schema: Any) -> JsonSchemaValue:
        """What `known` says of the function; else what the inner schema takes."""
        return self._through(schema, super().function_after_schema)

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        """The same."""
        return self._through(schema, super().function_before_schema)

    def function_wrap_schema(self, schema: Any) -> JsonSchemaValue:
        """The same."""
        return self._through(schema, super().function_wrap_schema)

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        """What `known` says of the function; there is no inner schema."""
        return self._through(schema, super().function_plain_schema)

    def _through(self, schema: Any, unknown: Callable[[Any], JsonSchemaValue]) -> JsonSchemaValue:
        name = name_of(function_of(schema))
        if name is None or name in THROUGH:
            return unknown(schema)
        form = form_of(schema, name, is_key=self.is_key)
        return limited(unknown(schema), function_of(schema)) if form is None else form

    def chain_schema(self, schema: Any) -> JsonSchemaValue:
        """All steps; what Python objects after the first must be is a matter of JSON's types."""
        first, *others = schema["steps"]
        forms = [self.generate_inner(first)]
        for step in others:
            if step["type"] == "is-instance":
                kinds = [name for name, kind in _JSON_TYPES.items() if issubclass(kind, step["cls"])]
                forms.append({"type": kinds} if kinds else refused(_WITHOUT_JSON))
            elif step["type"] != "function-plain" or name_of(function_of(step)) in FORMS:
                forms.append(self.generate_inner(step))
        forms = [form for form in forms if form] or [{}]
        return forms[0] if len(forms) == 1 else {"allOf": forms}

    def is_instance_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused."""
        return refused(_WITHOUT_JSON)

    def is_subclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused."""
        return refused(_WITHOUT_JSON)

    def callable_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused."""
        return refused(_WITHOUT_JSON)

    # ---------------------------------------------------------------- unions

    def union_schema(self, schema: Any) -> JsonSchemaValue:
        """Without what only Python objects can be."""
        choices = [(each, each[0] if isinstance(each, tuple) else each) for each in schema["choices"]]
        kept = [each for each, choice in choices if choice["type"] not in _PYTHON_ONLY]
        fewer: Any = {**schema, "choices": kept}
        return super().union_schema(fewer) if kept else refused(_WITHOUT_JSON)

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        """Refused where a function chooses, or where no one key of all options does."""
        form = super().tagged_union_schema(schema)
        if callable(schema["discriminator"]):
            return refused("a function chooses the option; use a field of Literal, Field(discriminator='kind')")
        if "discriminator" not in form:
            return refused("its options share no key that tells them apart; give it one name")
        return form

    def definition_ref_schema(self, schema: Any) -> JsonSchemaValue:
        """Of keys the schema itself, as it is another one there."""
        if self.is_key and schema["schema_ref"] in self.shared:
            return self.generate_inner(self.shared[schema["schema_ref"]])
        return super().definition_ref_schema(schema)
