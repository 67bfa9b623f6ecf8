"""Which bytes a constraint needs and a vocabulary has no token for; such a constraint is refused.

Many published vocabularies lack some bytes that stand in rare characters alone: control characters, the first bytes of
planes in which nothing is written. A token may end at any byte, so the rest of the text must be spelt from there, if
need be byte by byte. Where other bytes lead to the same place in as few bytes, as they do inside a string, the missing
ones are not needed: whatever can be completed in n bytes can then be completed in n tokens, and masks are right without
a look at what is missing. They just do not hold the characters that cannot be spelt.

It knows networks, and nothing of states.
"""

from __future__ import annotations

import numpy as np

from ...errors import ConstraintError
from ..columns import K_BYTE
from ..network.network import Network
from ..text.text_view import TextView, mask_of
from ..vocabulary.vocabulary import Vocabulary

MAX_NAMED = 5
MANY_CHARACTERS = 4096  # no text has as many keys or items that differ in one character alone


def needed_bytes(network: Network, missing: int) -> int:
    """Those of some bytes without which a text may have no end, bit b for byte b: no other leads to the same place.

    Keys and items that must differ may use up what characters there are, so there the others must be thousands, and
    no digit may be missing.
    """
    needed = mask_of(np.unique(network.arg[network.kind == K_BYTE])) | mask_of(np.unique(network.laid.set_bytes))
    for words in network.byte_sets.tolist():
        found = sum(word << 64 * place for place, word in enumerate(words))
        needed |= 0 if found & ~missing else found
    for index, text in enumerate(network.texts):
        must_differ = index in network.key_texts or network.edge_texts != ()
        least = MANY_CHARACTERS if must_differ else 1
        needed |= TextView(text).needed_bytes(missing, least=least)
    return needed & missing


def check_bytes(network: Network, vocabulary: Vocabulary, kind: str) -> None:
    """Refuses a constraint that needs bytes for which a vocabulary has no token.

    Raises:
        ConstraintError: it names the bytes.
    """
    needed = needed_bytes(network, vocabulary.missing_bytes) if vocabulary.missing_bytes else 0
    if needed:
        missing = [byte for byte in range(256) if needed >> byte & 1]
        named = [f"{chr(byte)!r}" if 0x20 < byte < 0x7F else f"the byte 0x{byte:02X}" for byte in missing[:MAX_NAMED]]
        more = f" and {len(missing) - MAX_NAMED} others" if len(missing) > MAX_NAMED else ""
        raise ConstraintError(
            f"the {kind} constraint needs bytes that this vocabulary has no token for: {', '.join(named)}{more}; leave "
            "the characters out that they stand in, or use a model whose vocabulary has every byte (byte fallback)",
            param="vocabulary",
        )
