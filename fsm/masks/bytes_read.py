"""Which bytes a text may hold, or must: from that it follows whether it matters that a vocabulary lacks some.

Many published vocabularies lack some bytes that stand in rare characters alone: control characters, the first bytes of
planes in which nothing is written. Inside a string they do not matter, since the automaton goes the same way with other
characters, of which there are thousands.
"""

from __future__ import annotations

import numpy as np

from ..automaton.automaton import Automaton
from ..columns import K_BYTE
from ..network.network import Network
from ..text.text_view import TextView, mask_of

MAX_SHOWN = 60  # bytes of a text
MAX_NAMED = 5
MANY_CHARACTERS = 4096  # nobody writes so many keys or items that differ in one character alone


def bytes_of_network(network: Network) -> int:
    """The bytes that may be read, bit b for byte b; some more where a part of the network cannot be reached."""
    found = mask_of(np.unique(network.arg[network.kind == K_BYTE]))
    found |= mask_of(np.unique(network.sets.edges[:, 0]))
    for index in range(len(network.byte_sets)):
        found |= byte_set_mask(network, index)
    for text in network.texts:
        found |= TextView(text).bytes_read
    return found


def may_lack(network: Network, lacking: int) -> bool:
    """Whether wherever a byte of `lacking` may be read, others lead to the same place in as few bytes.

    Then what can be finished in bytes can be finished without these, in the same number. Keys and items that must
    differ may use up what characters there are, so there the others must be thousands.
    """
    bytes_alone = mask_of(np.unique(network.arg[network.kind == K_BYTE])) | mask_of(np.unique(network.sets.edges[:, 0]))
    sets = (byte_set_mask(network, index) for index in range(len(network.byte_sets)))
    if bytes_alone & lacking or any(found & lacking and not found & ~lacking for found in sets):
        return False
    must_differ = set(network.key_texts)
    return all(
        TextView(text).may_lack(lacking, least=MANY_CHARACTERS if index in must_differ else 1)
        for index, text in enumerate(network.texts)
    )


def byte_set_mask(network: Network, index: int) -> int:
    """The bytes of a byte set."""
    return sum(word << 64 * place for place, word in enumerate(network.byte_sets[index].tolist()))


def shortest_text(automaton: Automaton) -> bytes:
    """A text of few bytes, or its beginning, whatever tokens there are."""
    text, state = bytearray(), automaton.start
    while not automaton.is_accepting(state) and len(text) < MAX_SHOWN:
        ways = [(byte, automaton.advance_bytes(state, bytes((byte,)))) for byte in range(256)]
        byte, state = min(
            ((byte, target) for byte, target in ways if target), key=lambda way: automaton.min_bytes(way[1])
        )
        text.append(byte)
    return bytes(text)


def what_is_lacking(automaton: Automaton) -> str:
    """For people: what a vocabulary that can spell no text has no token for."""
    text = shortest_text(automaton)
    lacking = dict.fromkeys(byte for byte in text if not automaton.vocabulary.atoms.alone >> byte & 1)
    named = [f"{chr(byte)!r}" if 0x20 < byte < 0x7F else f"the byte 0x{byte:02X}" for byte in lacking][:MAX_NAMED]
    return f"there is no token for {', '.join(named)} alone, as in {text.decode(errors='replace')!r}"
