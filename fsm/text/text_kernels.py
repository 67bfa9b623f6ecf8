"""Compiled steps of text automata: one byte, the way to the end, and the tokens below a node of the trie."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    NEVER,
    T_CLASSES,
    T_COSTS,
    T_INNER,
    T_LIVE,
    T_NODE_COSTS,
    T_NODES,
    T_REACH,
    T_TABLE,
    T_TEMPLATE,
    T_WORDS,
    TRIE_FIRSTS,
    TRIE_LENS,
    TRIE_ORDERED,
    i32,
    u8,
    u64,
)


@inner_kernel
def text_alive(text: Any, state: Any, node: Any) -> Any:
    """Whether a character begun (template node) can be completed into a live state."""
    num_words = text[T_WORDS]
    reach, live = u64(text[T_REACH]), u64(text[T_LIVE])
    alive = False
    for word in range(num_words):
        alive = alive or (reach[node * num_words + word] & live[state * num_words + word]) != 0
    return alive


@inner_kernel
def text_step(text: Any, sub: Any, byte: Any) -> Any:
    """The byte state after one more byte; 0: refused."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    spelt = np.int64(i32(text[T_INNER] if node else text[T_TEMPLATE])[node * 256 + byte])
    if spelt == 0:
        return 0
    if spelt < 0:
        return i32(text[T_TABLE])[state * text[T_CLASSES] - spelt] * num_nodes
    return state * num_nodes + spelt if text_alive(text, state, spelt) else 0


@inner_kernel
def text_cost(text: Any, sub: Any) -> Any:
    """Least number of bytes from a byte state to acceptance."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    costs = i32(text[T_COSTS])
    if node == 0:
        return costs[state]
    num_classes = text[T_CLASSES]
    table, node_costs = i32(text[T_TABLE]), i32(text[T_NODE_COSTS])
    best = np.int64(NEVER)
    for class_id in range(1, num_classes):
        target = table[state * num_classes + class_id]
        if target and node_costs[node * num_classes + class_id] < 9:
            best = min(best, np.int64(costs[target]) + node_costs[node * num_classes + class_id])
    return best


@inner_kernel
def set_tokens(memory: Any, trie: Any, node: Any, end: Any, bits: Any) -> None:
    """Sets the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, firsts = i32(memory[trie + TRIE_ORDERED]), i32(memory[trie + TRIE_FIRSTS])
    for index in range(firsts[node], firsts[end]):
        token = tokens[index]
        bits[token >> 5] |= np.int32(1) << np.int32(token & 31)


@inner_kernel
def clear_tokens(memory: Any, trie: Any, node: Any, end: Any, bits: Any) -> None:
    """Clears the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, firsts = i32(memory[trie + TRIE_ORDERED]), i32(memory[trie + TRIE_FIRSTS])
    for index in range(firsts[node], firsts[end]):
        token = tokens[index]
        bits[token >> 5] &= ~(np.int32(1) << np.int32(token & 31))


@inner_kernel
def set_short_tokens(memory: Any, trie: Any, node: Any, end: Any, limit: Any, bits: Any) -> None:
    """Sets the bits of the tokens of at most `limit` characters that end there, and clears those of the others."""
    tokens, firsts = i32(memory[trie + TRIE_ORDERED]), i32(memory[trie + TRIE_FIRSTS])
    lens = u8(memory[trie + TRIE_LENS])
    for index in range(firsts[node], firsts[end]):
        token = tokens[index]
        bit = np.int32(1) << np.int32(token & 31)
        bits[token >> 5] = bits[token >> 5] | bit if lens[index] <= limit else bits[token >> 5] & ~bit
