"""Schema documents by URI that a schema may refer to: an explicit store, given by the caller; nothing is fetched.

A document is known by the URI that it is given under, which its own references are relative to, and by its `$id` if it
has one, which then is what they are relative to. It knows nothing of what a document says.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import InvalidSchema
from ..json_size import check_json_size

Resources = Mapping[str, dict[str, Any] | bool]
NO_RESOURCES: Resources = MappingProxyType({})


def checked_resources(resources: object) -> Resources:
    """Documents as a caller states them, by URIs without fragments.

    Raises:
        InvalidSchema: that is no mapping of URIs to schemas, a URI has a fragment, or it is given twice.
        ConstraintTooLarge: parts of a document occur so often that its text is out of all proportion.
    """
    if resources is NO_RESOURCES:
        return NO_RESOURCES
    if not isinstance(resources, Mapping):
        message = f"resources: expected schemas by URI, a dict, not {type(resources).__name__}"
        raise InvalidSchema(message, param="resources")
    found: dict[str, dict[str, Any] | bool] = {}
    for uri, document in resources.items():
        if not isinstance(uri, str):
            raise InvalidSchema(f"resources: expected a URI as text, not {uri!r}", param="resources")
        if not isinstance(document, (dict, bool)):
            message = f"resources, {uri}: a schema is a dict or a bool, not {type(document).__name__}"
            raise InvalidSchema(message, param="resources")
        address = uri.removesuffix("#")
        if "#" in address:
            message = f"resources, {uri}: give the URI of the whole document, without a fragment"
            raise InvalidSchema(message, param="resources")
        if address in found:
            message = f"resources, {uri}: it is given twice, with an empty fragment and without"
            raise InvalidSchema(message, param="resources")
        check_json_size(document, f"schema {uri}", InvalidSchema, param="resources")
        found[address] = document
    return found
