"""The routers of this process.

Serve makes a router in each process that calls a deployment, and gives no access to it; and it makes it from a copy of
its class, so an attribute of the class is not shared with it. A module is the same for all: hence this one, with
a single variable.
"""

from __future__ import annotations

import weakref
from typing import Any

ROUTERS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Each a `PrefixRouter`."""
