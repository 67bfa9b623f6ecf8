"""Dates, times of day and durations as JSON Schemas, with bounds, as pydantic reads and writes them.

Times are written with `T`, to the minute, second, or up to six digits of a second, with or without an offset. Under
bounds a fraction has three or six digits. Bounds are compared as pydantic compares them: as instants where value and
bound have an offset, else by their digits. So under a bound with an offset (other than for times of day) a value has
none, or is written in UTC (`Z`).

A duration is `P3W`, or `P1Y2M3DT4H5M6.5S` of less than 2,700,000 years of 365 days; under bounds it is the one text
that pydantic writes (`P1Y35DT1H0.5S`). What must lie in the past or in the future does so when the schema is made,
times in the future by an hour.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from .forms import BOUNDS, no_value, text
from .ranges import NOTHING, boxes, digits, whole

_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_OFFSET = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_UTC = r"(Z|\+00:00)"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_SECOND, _MINUTE, _DAY = 10**6, 60 * 10**6, 24 * 3600 * 10**6
_UNITS = ((_MINUTE, 16), (_SECOND, 19), (1000, 23), (1, 26))
"""Microseconds, and the length of a time that is written to this unit, its date included."""
_UNIT_OF_DURATION = (365 * _DAY, _DAY, 3600 * _SECOND, _MINUTE, _SECOND, 1)
_MOST = (2_699_999, 364, 23, 59, 59, 999_999)
_EPOCH = dt.datetime(1, 1, 1)
_LAST = dt.datetime.max
_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_VALID_DATE = (
    r"(?!0000)([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    rf"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)

Bounds = Mapping[str, Any]
"""`ge`, `gt`, `le`, `lt`, as a core schema has them, and `now_op`."""


def date(bounds: Bounds) -> JsonSchemaValue:
    """Days within bounds."""
    if (side := bounds.get("now_op")) is not None:
        today = dt.date.today()
        return _both(date, bounds, {"lt": today} if side == "past" else {"gt": today})
    form = {"type": "string", "format": "date"}
    if not is_bounded(bounds):
        return form
    low, high = interval(bounds, lambda day: day.toordinal(), 1, dt.date.max.toordinal())
    if low > high:
        return no_value("date", bounds)
    days = [dt.date.fromordinal(day).isoformat() for day in (low, high)]
    return {**form, "pattern": f"^{digits(*days)}$"}


def time(bounds: Bounds) -> JsonSchemaValue:
    """Times of day. Under bounds: without an offset, as one of them is compared with digits, and two as instants."""
    if not is_bounded(bounds):
        return text(f"{_CLOCK}{_offset(bounds)}")
    low, high = interval(bounds, _clock_number, 0, _DAY - 1)
    if low > high:
        return no_value("time", bounds)
    return _all(f"^{_CLOCK}$", f"^({_moments(low, high, first=len('0001-01-01T'))})$")


def datetime(bounds: Bounds) -> JsonSchemaValue:
    """Moments: with an offset, without one (`tz_constraint`), or either."""
    if (side := bounds.get("now_op")) is not None:  # an answer about the future is still to be written, and then read
        now = dt.datetime.now().astimezone()
        return _both(datetime, bounds, {"lt": now} if side == "past" else {"gt": now + dt.timedelta(hours=1)})
    if not is_bounded(bounds):
        return text(f"{_VALID_DATE}T{_CLOCK}{_offset(bounds)}")
    constraint = bounds.get("tz_constraint")
    forms = []
    if constraint != "aware" and not isinstance(constraint, int):
        low, high = interval(bounds, lambda moment: _number(moment.replace(tzinfo=None)), 0, _number(_LAST))
        forms.append(_moments(low, high))
    if constraint != "naive":
        offset = constraint if isinstance(constraint, int) else 0
        shift, suffix = dt.timedelta(seconds=offset), _of_offset(offset) if offset else _UTC
        low, high = interval(bounds, lambda moment: _number(_local(moment, shift)), 0, _number(_LAST))
        forms.append(f"({_moments(low, high)}){suffix}")
    if all(form.startswith((NOTHING, f"({NOTHING})")) for form in forms):
        return no_value("datetime", bounds)
    return _all(f"^{_VALID_DATE}T{_CLOCK}({_OFFSET})?$", f"^({'|'.join(forms)})$")


def timedelta(bounds: Bounds) -> JsonSchemaValue:
    """Durations; a week and a month have 7 and 30 days, as pydantic counts them."""
    number = "[0-9]{1,4}"
    if not is_bounded(bounds):
        years = whole(0, _MOST[0])
        days = "([0-9]{1,8}|[1-8][0-9]{8})"
        clock = r"T(?!$)([0-9]{1,6}H)?([0-9]{1,6}M)?([0-9]{1,9}(\.[0-9]{1,6})?S)?"
        return text(rf"-?P({number}W|(?!$)({years}Y)?({number}M)?([0-9]{{1,6}}D)?({clock})?|{days}D({clock})?)")
    most = sum(value * unit for value, unit in zip(_MOST, _UNIT_OF_DURATION, strict=True))
    low, high = interval(bounds, lambda span: span // dt.timedelta(microseconds=1), -most, most)
    options = ["PT0S"] if low <= 0 <= high else []
    options += [f"-{one}" for one in _durations(max(1, -high), -low)]
    options += _durations(max(1, low), high)
    return text("|".join(options)) if options else no_value("timedelta", bounds)


def seconds(bounds: Bounds) -> JsonSchemaValue:
    """The bounds of durations that are written as numbers of seconds."""
    most = 86_400 * 999_999_999
    found = {BOUNDS[name]: bounds[name].total_seconds() for name in BOUNDS if bounds.get(name) is not None}
    return {"minimum": -most, "maximum": most, **found}


def _durations(low: int, high: int) -> Iterable[str]:
    """Patterns of durations of at least one microsecond, in the one text that pydantic writes."""
    if low > high:
        return
    for years, days, hours, minutes, seconds, parts in boxes(_components(low), _components(high), _MOST):
        day = _optional(years, "Y") + _optional(days, "D")
        clock = _optional(hours, "H") + _optional(minutes, "M") + _seconds(seconds, parts)
        is_long = any(first > 0 for first, _ in (hours, minutes, seconds, parts))
        yield f"P{day}T{clock}" if is_long else f"P(?!$){day}(T(?!$){clock})?"


def _components(span: int) -> list[int]:
    found = []
    for unit in _UNIT_OF_DURATION:
        found.append(span // unit)
        span %= unit
    return found


def _optional(bounds: tuple[int, int], unit: str) -> str:
    """A number and its unit; what is 0 is left out."""
    low, high = bounds
    some = f"{whole(max(1, low), high)}{unit}"
    return "" if high == 0 else some if low else f"({some})?"


def _seconds(bounds: tuple[int, int], parts: tuple[int, int]) -> str:
    """Seconds with a fraction of up to six digits, the last of which is no zero."""
    no_zeros = r"(?=[0-9]{0,5}[1-9]S)" if parts != (0, 0) else ""
    fraction = "|".join(
        text for text in (_fraction(max(1, parts[0]), parts[1], size) for size in range(1, 7)) if text is not None
    )
    part = "" if parts == (0, 0) else rf"\.{no_zeros}({fraction})"
    low, high = bounds
    options = []
    if parts[0] == 0:
        options.append(_optional(bounds, "S") if low or high else "")
        options += [f"{whole(low, high)}{part}S"] if part else []
        return f"({'|'.join(options)})" if len(options) > 1 else options[0]
    return f"{whole(low, high)}{part}S"


def _fraction(low: int, high: int, size: int) -> str | None:
    """A fixed number of digits after the point, which stand for these microseconds."""
    unit = 10 ** (6 - size)
    first, last = -(-low // unit), high // unit
    return digits(f"{first:0{size}}", f"{last:0{size}}") if first <= last else None


def _moments(low: int, high: int, *, first: int = 0) -> str:
    """A pattern of date and time between two numbers of microseconds, each of them written to another unit.

    Args:
        first: the first character that is written; after the date, for times of day.
    """
    found = []
    for unit, size in _UNITS:
        least, most = -(-low // unit) * unit, high // unit * unit
        if least <= most:
            texts = [(_EPOCH + dt.timedelta(microseconds=n)).isoformat(timespec="microseconds") for n in (least, most)]
            found.append(digits(*(text[first:size] for text in texts)))
    return "|".join(found) or NOTHING


def interval(bounds: Bounds, number: Callable[[Any], int], low: Any, high: Any) -> tuple[Any, Any]:
    """The least and the greatest whole number within the bounds; None: there is none."""
    for name, step in (("ge", 0), ("gt", 1)):
        if bounds.get(name) is not None:
            bound = number(bounds[name]) + step
            low = bound if low is None else max(low, bound)
    for name, step in (("le", 0), ("lt", 1)):
        if bounds.get(name) is not None:
            bound = number(bounds[name]) - step
            high = bound if high is None else min(high, bound)
    return low, high


def is_bounded(bounds: Bounds) -> bool:
    return any(bounds.get(name) is not None for name in BOUNDS)


def _number(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _clock_number(time: dt.time) -> int:
    return _number(dt.datetime.combine(_EPOCH.date(), time.replace(tzinfo=None)))


def _local(moment: dt.datetime, shift: dt.timedelta) -> dt.datetime:
    """The digits of the same instant at another offset; a moment without an offset is compared by its digits."""
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(dt.timezone(shift)).replace(tzinfo=None)


def _both(form: Callable[[Bounds], JsonSchemaValue], bounds: Bounds, now: Bounds) -> JsonSchemaValue:
    """Within the bounds, and on the right side of now."""
    others = {name: bound for name, bound in bounds.items() if name != "now_op"}
    return {"type": "string", "allOf": [form(others), form({**now, "tz_constraint": bounds.get("tz_constraint")})]}


def _offset(bounds: Bounds) -> str:
    constraint = bounds.get("tz_constraint")
    if isinstance(constraint, int):
        return _of_offset(constraint)
    return "" if constraint == "naive" else _OFFSET if constraint == "aware" else f"{_OFFSET}?"


def _of_offset(seconds: int) -> str:
    sign, minutes = "-" if seconds < 0 else r"\+", abs(seconds) // 60
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    return text if seconds else _UTC


def _all(*patterns: str) -> JsonSchemaValue:
    return {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns]}
