"""The terminals of Lark's library `common`, as regular expressions of the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_INT = "[0-9]+"
_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_EXP = "[eE][+-]?[0-9]+"
_FLOAT = f"(?:[0-9]+{_EXP}|{_DECIMAL}(?:{_EXP})?)"
_NUMBER = f"(?:{_FLOAT}|{_INT})"

COMMON: Mapping[str, str] = MappingProxyType(
    {
        "DIGIT": "[0-9]",
        "HEXDIGIT": "[a-fA-F0-9]",
        "INT": _INT,
        "SIGNED_INT": f"[+-]?{_INT}",
        "DECIMAL": _DECIMAL,
        "_EXP": _EXP,
        "FLOAT": _FLOAT,
        "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
        "NUMBER": _NUMBER,
        "SIGNED_NUMBER": f"[+-]?{_NUMBER}",
        "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
        "LCASE_LETTER": "[a-z]",
        "UCASE_LETTER": "[A-Z]",
        "LETTER": "[A-Za-z]",
        "WORD": "[A-Za-z]+",
        "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
        "WS_INLINE": r"[ \t]+",
        "WS": r"[ \t\f\r\n]+",
        "CR": r"\r",
        "LF": r"\n",
        "NEWLINE": r"(?:\r?\n)+",
        "SH_COMMENT": r"#[^\n]*",
        "CPP_COMMENT": r"//[^\n]*",
        "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
        "SQL_COMMENT": r"--[^\n]*",
    }
)
