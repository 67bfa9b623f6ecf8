"""The automata of all texts except some, compiled; `json_schema/key_trie.py` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import kernel
from ..memory import (
    NEVER,
    T_ACCEPTS,
    T_CLASSES,
    T_COSTS,
    T_INNER,
    T_IS_WIDE,
    T_LIVE,
    T_MAX,
    T_NODE_COSTS,
    T_NODES,
    T_NUM_ASCII,
    T_PLAIN,
    T_REACH,
    T_START,
    T_STATES,
    T_TABLE,
    T_TEMPLATE,
    T_WORDS,
    TEXT_WIDTH,
)
from .alphabet_kernels import UNREACHABLE

QUOTE = 0x22
OTHER_CLASS, QUOTE_CLASS = 1, 2  # of any character, and of the quote
BASE_HEAD = 3
FIELDS_HEAD = TEXT_WIDTH + 1


@kernel
def trie_except(symbols: Any, lens: Any, num_classes: Any) -> Any:
    """table, accepting, distance of a `Dfa` from state 1 that takes all texts but the given ones.

    Args:
        symbols: int64, the characters of the sorted, distinct texts one after the other, each as its class - 1.
        lens: int64[num_texts].
        num_classes: classes of the alphabet; class 0 is never written, the last one is that of no symbol.
    """
    num_states = 2
    begin, before = 0, 0
    for index in range(lens.shape[0]):
        shared, limit = 0, min(lens[index], lens[index - 1]) if index else 0
        while shared < limit and symbols[begin + shared] == symbols[before + shared]:
            shared += 1
        num_states += lens[index] - shared
        before = begin
        begin += lens[index]
    anything = num_states
    table = np.full((num_states + 1, num_classes), anything, np.int32)
    table[0, :] = 0
    table[:, 0] = 0
    accepting = np.ones(num_states + 1, np.bool_)
    distance = np.zeros(num_states + 1, np.int32)
    accepting[0], distance[0] = False, -1
    num_states, at = 2, 0
    for index in range(lens.shape[0]):
        state = 1
        for _ in range(lens[index]):
            class_id = symbols[at] + 1
            at += 1
            if table[state, class_id] == anything:
                table[state, class_id] = num_states
                num_states += 1
            state = table[state, class_id]
        accepting[state], distance[state] = False, 1
    return table, accepting, distance


@kernel
def strings_except(texts: Any, base: Any) -> Any:
    """The `TextTable` of all JSON strings but some, as `OtherStrings` numbers their states.

    Classes are numbered as in `base`, with those of single characters behind: so the template is that of all strings,
    but for the first node, since only ASCII is told apart. It lies in `base`, which must live as long.

    Args:
        texts: the sorted, distinct texts, printable ASCII without backslash, with a quote behind each, as bytes.
        base: int32, `base_of_strings` of all JSON strings.

    Returns:
        int64: the fields, the length of the shortest string (which is the greatest cost of a state), and all arrays
        that the fields point to.
    """
    num_nodes = np.int64(base[0])
    class_of = np.zeros(128, np.int32)
    for at in range(len(texts)):
        class_of[texts[at]] = 1
    class_of[QUOTE] = 0
    num_classes = QUOTE_CLASS + 1
    for byte in range(128):
        if class_of[byte]:
            class_of[byte] = num_classes
            num_classes += 1
    num_states, begin, before, end_before = 2, 0, 0, 0
    while begin < len(texts):  # the states of the trie: what a text does not share with the one before it
        end = begin
        is_shared = True
        while texts[end] != QUOTE:
            is_shared = is_shared and before + end - begin < end_before and texts[end] == texts[before + end - begin]
            num_states += 0 if is_shared else 1
            end += 1
        before, end_before, begin = begin, end, end + 1
    anything, closed, opening = num_states, num_states + 1, num_states + 2
    num_states += 3

    words = (num_classes + 63) >> 6
    reach_at = 2 * num_states * words  # behind live
    table_at = reach_at + 2 * num_nodes * words
    template_at = table_at + num_states * num_classes
    node_costs_at = template_at + 256
    costs_at = node_costs_at + num_nodes * num_classes
    ascii_at = costs_at + num_states
    accepts_at = ascii_at + num_classes
    wide_at = accepts_at + ((num_states + 3) >> 2)
    plain_at = wide_at + ((num_classes + 3) >> 2)
    found = np.zeros(FIELDS_HEAD + ((plain_at + num_states + 1) >> 1), np.int64)
    fields, data = found[:TEXT_WIDTH], found[FIELDS_HEAD:].view(np.int32)
    live, reach = data[:reach_at].view(np.uint64), data[reach_at:table_at].view(np.uint64)
    table, template = data[table_at:template_at], data[template_at:node_costs_at]
    node_costs, costs = data[node_costs_at:costs_at], data[costs_at:ascii_at]
    num_ascii, accepts = data[ascii_at:accepts_at], data[accepts_at:wide_at].view(np.uint8)
    is_wide, plain = data[wide_at:plain_at].view(np.uint8), data[plain_at:]

    for state in range(1, closed):
        row = state * num_classes
        for class_id in range(1, num_classes):
            table[row + class_id] = anything
        table[row + QUOTE_CLASS] = closed
        costs[state] = 1
    state, following, ends_empty = 1, 2, False
    for at in range(len(texts)):
        if texts[at] != QUOTE:
            cell = state * num_classes + class_of[texts[at]]
            if table[cell] == anything:
                table[cell] = following
                following += 1
            state = table[cell]
        else:  # this text may not end here
            table[state * num_classes + QUOTE_CLASS], costs[state] = 0, 2
            ends_empty = ends_empty or state == 1
            state = 1
    table[opening * num_classes + QUOTE_CLASS] = 1
    accepts[closed] = 1
    costs[0], costs[closed], costs[opening] = NEVER, 0, 3 if ends_empty else 2
    for state in range(1, closed):
        for class_id in range(1, num_classes):
            if class_id != QUOTE_CLASS or costs[state] == 1:
                live[state * words + (class_id >> 6)] |= np.uint64(1) << np.uint64(class_id & 63)
    live[opening * words] = np.uint64(1) << np.uint64(QUOTE_CLASS)

    for byte in range(256):
        template[byte] = base[BASE_HEAD + byte]
    for byte in range(128):
        if class_of[byte]:
            template[byte] = -class_of[byte]
            num_ascii[class_of[byte]] = 1
    num_ascii[OTHER_CLASS], num_ascii[QUOTE_CLASS] = base[1] - (num_classes - QUOTE_CLASS - 1), 1
    is_wide[OTHER_CLASS] = base[2]
    for node in range(num_nodes):
        cost = base[BASE_HEAD + 256 * num_nodes + node]
        for class_id in range(num_classes):
            node_costs[node * num_classes + class_id] = UNREACHABLE
        if node == 0:
            for class_id in range(1, num_classes):
                node_costs[class_id] = 1
                reach[class_id >> 6] |= np.uint64(1) << np.uint64(class_id & 63)
        elif cost != UNREACHABLE:
            node_costs[node * num_classes + OTHER_CLASS] = cost
            reach[node * words] |= np.uint64(1) << np.uint64(OTHER_CLASS)

    fields[T_PLAIN] = plain.ctypes.data
    fields[T_TABLE], fields[T_ACCEPTS] = table.ctypes.data, accepts.ctypes.data
    fields[T_TEMPLATE], fields[T_INNER] = template.ctypes.data, base.ctypes.data + 4 * BASE_HEAD
    fields[T_REACH] = reach.ctypes.data
    fields[T_LIVE], fields[T_COSTS] = live.ctypes.data, costs.ctypes.data
    fields[T_NODE_COSTS], fields[T_IS_WIDE] = node_costs.ctypes.data, is_wide.ctypes.data
    fields[T_NUM_ASCII], fields[T_CLASSES], fields[T_NODES] = num_ascii.ctypes.data, num_classes, num_nodes
    fields[T_WORDS], fields[T_START], fields[T_STATES] = words, opening * num_nodes, num_states
    fields[T_MAX] = -1  # not counted
    found[TEXT_WIDTH] = costs[opening]
    return found


@kernel
def base_of_strings(template: Any, byte_costs: Any, is_wide: Any, num_ascii: Any) -> Any:
    """What `strings_except` needs of the spelling of all JSON strings, in which OTHER_CLASS is any character.

    int32: the numbers of nodes and of ASCII characters, is_wide; the template; by node the bytes to a whole character.
    """
    num_nodes = template.shape[0]
    base = np.empty(BASE_HEAD + 257 * num_nodes, np.int32)
    base[0], base[1], base[2] = num_nodes, num_ascii[1], is_wide[1]
    for node in range(num_nodes):
        for byte in range(256):
            base[BASE_HEAD + 256 * node + byte] = template[node, byte]
        base[BASE_HEAD + 256 * num_nodes + node] = byte_costs[node, 1]
    return base
