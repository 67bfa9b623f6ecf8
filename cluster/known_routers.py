"""The routers of this process.

Serve makes a router in each process that calls a deployment, and hands it out to no one; and it makes it from a copy of
its class, so what is an attribute of the class is another one there. A module is the same for all: so this is one, with
a single variable.
"""

from __future__ import annotations

import weakref
from typing import Any

ROUTERS: weakref.WeakSet[Any] = weakref.WeakSet()
"""Each a `PrefixRouter`."""
