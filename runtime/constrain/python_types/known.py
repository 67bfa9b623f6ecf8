"""What the validator functions of pydantic and pydantic-extra-types take, by the name of the function.

A core schema says that a text goes through a function, and not what the function takes. Its own JSON Schema mostly says
`string`. A new type is one line here: a JSON Schema, `Listed` values, or the reason why it cannot be enforced; and one
line with values of it in `tests/runtime/constrain/python_types/kinds.py`. A function of these two packages that is not
here is refused; any other function is a validator of the user's own, which a mask cannot know.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from pydantic.json_schema import JsonSchemaValue

from . import addresses
from .decimals import fraction
from .forms import text
from .ranges import decimals, whole

OWN_PACKAGES = ("pydantic", "pydantic_extra_types")
_PACKAGES = (*OWN_PACKAGES, "ipaddress")
_OWN_WORDS = "pydantic.experimental"  # pipelines are functions of the user's, wrapped


class Listed(NamedTuple):
    """The values of a type stand in a list of another module; those that the type takes are meant."""

    module: str
    values: Callable[[Any], Iterable[str]]


def _attribute(collection: str, name: str) -> Listed:
    """An attribute of every entry of one of pycountry's tables."""
    return Listed(
        "pycountry", lambda module: [getattr(e, name) for e in getattr(module, collection) if hasattr(e, name)]
    )


def _enums(module: Any) -> list[str]:
    import enum

    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    return [member.value for kind in kinds for member in kind]


def _colour(module: str) -> JsonSchemaValue:
    names = "|".join(sorted(importlib.import_module(module).COLORS_BY_NAME))
    byte = addresses.BYTE
    return text(rf"{names}|#([0-9A-Fa-f]{{3,4}}|[0-9A-Fa-f]{{6}}|[0-9A-Fa-f]{{8}})|rgb\({byte}(, ?{byte}){{2}}\)")


def _encoded(schema: Mapping[str, Any]) -> JsonSchemaValue | str:
    """Base64 in groups of four. What becomes text is ASCII: the eighth bit of every byte is 0."""
    function = schema["function"]["function"]
    encoder = function.__self__.encoder.__name__
    last = {"Base64Encoder": "+/", "Base64UrlEncoder": "_-"}.get(encoder)
    if last is None:
        return f"what {encoder} decodes is not known; use str or bytes"
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + last

    def with_zeros(mask: int) -> str:
        return "[" + "".join(sign if sign != "-" else r"\-" for n, sign in enumerate(signs) if not n & mask) + "]"

    one, two, three = (32, 8, 2) if function.__name__ == "decode_str" else (0, 0, 0)
    first, second, third, any_sign = with_zeros(one), with_zeros(two), with_zeros(three), with_zeros(0)
    pair, triple = f"{first}{with_zeros(two | 15)}==", f"{first}{second}{with_zeros(three | 3)}="
    return text(f"({first}{second}{third}{any_sign})*({pair}|{triple})?")


def _named_email(schema: Mapping[str, Any]) -> JsonSchemaValue:
    try:
        schema["function"]["function"]("J. R. <jr@example.com>")
    except ValueError:
        return text(addresses.named_email(has_points=False))
    return text(addresses.named_email(has_points=True))


def _cron(largest: int, least: int = 0) -> str:
    """A field: `*`, `*/5`, or numbers and ranges of them with commas between."""
    numbers = whole(least, largest)
    spans = "|".join(f"{first}-{whole(first + 1, largest)}" for first in range(least, largest))
    return rf"(\*(/{whole(1, largest)})?|({numbers}|{spans})(,({numbers}|{spans}))*)"


def _degrees(most: int) -> str:
    return decimals(Decimal(-most), Decimal(most), opens=(False, False), places=None)


_ADDRESS = {
    "v4_address": addresses.IPV4,
    "v6_address": addresses.IPV6,
    "v4_network": addresses.IPV4_NETWORK,
    "v6_network": addresses.IPV6_NETWORK,
    "v4_interface": addresses.IPV4_INTERFACE,
    "v6_interface": addresses.IPV6_INTERFACE,
}
_FILES = "depends on the files of the machine; use pathlib.Path"
_CHECK_DIGIT = "ends with a check digit, which a mask cannot compute; use str with a pattern"

THROUGH = frozenset(
    (
        "path_validator", "SecretStr", "SecretBytes", "validate_secret_value", "<lambda>", "wrap_val", "val_func",
        "deque_validator", "defaultdict_validator", "sequence_validator", "_apply_constraint_with_incompatibility_info",
        "Coordinate._parse_args", "Coordinate._parse_tuple", "S3Path._validate", "MongoObjectId.validate",
        "DateTime._validate", "Date._validate", "Time._validate", "Duration._validate",
    )
)  # fmt: skip
"""Functions that take whatever the schema inside of them takes."""

FORMS: dict[str, JsonSchemaValue | Listed | str | Callable[[Mapping[str, Any]], JsonSchemaValue | str]] = {
    **{f"ip_{name}_validator": text(pattern) for name, pattern in _ADDRESS.items()},
    **{f"IP{name.replace('_', ' ').title().replace(' ', '')}": text(form) for name, form in _ADDRESS.items()},
    "IPvAnyAddress._validate": text(f"{addresses.IPV4}|{addresses.IPV6}"),
    "IPvAnyNetwork._validate": text(f"{addresses.IPV4_NETWORK}|{addresses.IPV6_NETWORK}"),
    "IPvAnyInterface._validate": text(f"{addresses.IPV4_INTERFACE}|{addresses.IPV6_INTERFACE}"),
    "EmailStr._validate": text(addresses.EMAIL),
    "NameEmail._validate": _named_email,
    "MacAddress._validate": text(addresses.MAC),
    "DomainStr.validate": text(addresses.DOMAIN),
    "EncodedBytes.decode": _encoded,
    "EncodedStr.decode_str": _encoded,
    "ByteSize._validate": {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            text(r"[0-9]{1,15}(\.[0-9]{1,15})? ?([Bb]|[KMGTPEkmgtpe]i?[Bb])?"),
        ]
    },
    "pattern_either_validator": {"type": "string", "format": "regex"},
    "pattern_str_validator": {"type": "string", "format": "regex"},
    "pattern_bytes_validator": "pydantic reads no such pattern from JSON; use re.Pattern[str]",
    "validate_str_is_valid_iana_tz": Listed("zoneinfo", lambda module: module.available_timezones()),
    "fraction_validator": functools.partial(fraction, is_key=False),
    "import_string": "imports what the model writes; use str, or an Enum of what may be imported",
    "PathType.validate_file": _FILES,
    "PathType.validate_directory": _FILES,
    "PathType.validate_new": _FILES,
    "PathType.validate_socket": _FILES,
    "ResolvedPathType.validate_file": _FILES,
    "ResolvedPathType.validate_directory": _FILES,
    "ResolvedPathType.validate_new": _FILES,
    "PaymentCardNumber.validate": _CHECK_DIGIT,
    "ISBN._validate": _CHECK_DIGIT,
    "IBAN._validate": _CHECK_DIGIT,
    "ABARoutingNumber._validate": _CHECK_DIGIT,
    "PhoneNumber._validate": "which numbers exist is known to the phonenumbers package alone; use str with a pattern",
    "PhoneNumberValidator._parse": "which numbers exist is known to phonenumbers alone; use str with a pattern",
    "Color._validate": lambda schema: _colour(schema["function"]["function"].__func__.__module__),
    "Coordinate._parse_str": text(f"{_degrees(90)}, ?{_degrees(180)}"),
    "CountryAlpha2._validate": _attribute("countries", "alpha_2"),
    "CountryAlpha3._validate": _attribute("countries", "alpha_3"),
    "CountryNumericCode._validate": _attribute("countries", "numeric"),
    "CountryShortName._validate": _attribute("countries", "name"),
    "ISO4217._validate": _attribute("currencies", "alpha_3"),
    "Currency._validate": _attribute("currencies", "alpha_3"),
    "LanguageAlpha2._validate": _attribute("languages", "alpha_2"),
    "LanguageName._validate": _attribute("languages", "name"),
    "ISO639_3._validate": _attribute("languages", "alpha_3"),
    "ISO639_5._validate": _attribute("language_families", "alpha_3"),
    "ISO_15924._validate": _attribute("scripts", "alpha_4"),
    "MimeType._validate": Listed("pydantic_extra_types.mime_types", _enums),
    "TimeZoneName._validate": Listed("zoneinfo", lambda module: module.available_timezones()),
    "CronStr.validate": text(" ".join((_cron(59), _cron(23), _cron(31, 1), _cron(12, 1), _cron(6)))),
    "_Base._validate": lambda schema: {
        "type": "integer" if schema["schema"]["type"] == "int" else "number",
        "minimum": -62135596800,  # the years 1 to 9999, in seconds from 1970 on
        "maximum": 253402300799,
    },
    "ULID._validate_ulid": text("[0-7][0-9A-HJKMNP-TV-Z]{25}"),
    "validate_from_str": text(
        r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-P(\.P)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?".replace(
            "P", "(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
        )
    ),
}


def function_of(schema: Mapping[str, Any]) -> Any:
    """The function that a core schema hands its value to; None if it has none."""
    return schema["function"]["function"] if str(schema.get("type")).startswith("function-") else None


def name_of(function: Any) -> str | None:
    """`Class._validate` or `a_function` of the packages whose functions are known; None: a function of the user's."""
    function = function.func if isinstance(function, functools.partial) else function
    module = str(getattr(function, "__module__", ""))
    if module.split(".")[0] not in _PACKAGES or module.startswith(_OWN_WORDS):
        return None
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]
