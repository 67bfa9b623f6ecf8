"""Which bytes a text may hold, or must: from that it follows whether it matters that a vocabulary lacks some."""

from __future__ import annotations

import numpy as np

from ..automaton.automaton import Automaton
from ..memory import K_BYTE
from ..network.network import Network
from ..text.text_view import TextView, mask_of

MAX_SHOWN = 60  # bytes of a text
MAX_NAMED = 5


def bytes_of_network(network: Network) -> int:
    """The bytes that may be read, bit b for byte b; some more where a part of the network cannot be reached."""
    found = mask_of(np.unique(network.arg[network.kind == K_BYTE]))
    found |= mask_of(np.unique(network.sets.edges[:, 0]))
    for index in range(len(network.byte_sets)):
        found |= byte_set_mask(network, index)
    for text in network.texts:
        found |= TextView(text).bytes_read
    return found


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
