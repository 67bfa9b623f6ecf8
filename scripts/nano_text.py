"""The bundled model's documents as benchmarks, tests and examples use them.

``SYSTEM_PROMPT``, the ``KINDS`` with their ``SCHEMAS``, and ``documents(seed, count)``: fresh documents, a pure
function of the seed. A document's ``text`` followed by a blank line and its ``extraction()`` is what the model was
trained to answer with ``document.json``.
"""

from collections.abc import Iterator
from random import Random

from nano_document import Document, JsonSchema, Kind, write
from nano_goods import INVOICE, PLACE, PRODUCT, TICKET
from nano_people import BOOKING, EVENT, PERSON, TRIP

SYSTEM_PROMPT = "You read documents. Answer briefly, or give JSON."

KINDS: dict[str, Kind] = {kind.name: kind for kind in (PERSON, INVOICE, TICKET, EVENT, PLACE, PRODUCT, BOOKING, TRIP)}
SCHEMAS: dict[str, JsonSchema] = {name: kind.schema for name, kind in KINDS.items()}


def documents(seed: int, count: int, kinds: tuple[str, ...] = ()) -> Iterator[Document]:
    """``count`` fresh documents, the kinds in turn (all of them, or those named)."""
    rng = Random(seed)
    names = kinds or tuple(KINDS)
    for index in range(count):
        kind = KINDS[names[index % len(names)]]
        yield write(kind, kind.invent(rng), rng)
