"""What chat templates may call beyond jinja2: `raise_exception`, `strftime_now`, and a `tojson` that escapes nothing.

Knows no environment and no account; what is bounded here is what a single call may make.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError

from .template_work import MAX_DATE_FORMAT, TooMuchWork

MAX_REFUSAL = 2000  # characters of what `raise_exception` says
_WIDTH_OF_DATE = re.compile(r"%[-_^#+]*\d")


class RefusedByTemplate(TemplateError):
    """The template itself called `raise_exception`."""


def raise_exception(message: str) -> NoReturn:
    """Raises RefusedByTemplate: the template refuses the conversation."""
    raise RefusedByTemplate(str(message)[:MAX_REFUSAL])


def strftime_now(format: str) -> str:
    """Today's date and time. Raises TooMuchWork: a long format, or a width in it."""
    if len(format) > MAX_DATE_FORMAT or _WIDTH_OF_DATE.search(format):
        raise TooMuchWork(f"its format of a date is longer than {MAX_DATE_FORMAT} characters, or has a width")
    return datetime.datetime.now().strftime(format)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models see it in training: characters as they are, no HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
