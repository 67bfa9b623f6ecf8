"""The place in the schema of an error that occurs while a text is written, when the schema itself is no longer in use.

An automaton that has no room for a text knows positions, and no keywords. So the text is read to see which value it is
in, and the schema is read again: the part that applies to that value is the one to change. It knows schemas only; the
errors of patterns and grammars stay as they are, since these have only one place.
"""

from __future__ import annotations

import json

from ..errors import ConstraintError, ConstraintTooLarge


def placed(error: ConstraintTooLarge, source: str, text: bytes) -> ConstraintTooLarge:
    """The error with the JSON pointer of what applies at the end of a text; itself where that is not known.

    Args:
        source: the schema as JSON text; empty if it is not kept.
    """
    if error.pointer or not source:
        return error
    from .json_schema.place import place_of, sites_at
    from .json_schema.sites import Sites
    from .json_schema.texts import shown_pointer

    place = place_of(text.decode(errors="replace"))
    try:
        sites = sites_at(Sites(json.loads(source), None), place.path)
    except (ConstraintError, RecursionError):
        return error
    pointer = sites[0].pointer if sites else ""
    where = f"{shown_pointer(pointer)}, in {place.pointer or 'the value'} of the text"
    remedy = "make the alternatives of this part fewer, or tell them apart by a required key with a constant"
    return ConstraintTooLarge(f"{where}: {error}; {remedy}", pointer=pointer)
