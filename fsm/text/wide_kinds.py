"""Kinds of characters beyond ASCII: those that patterns distinguish, unions of which are `\\p{L}`, `\\w`, `\\d`, `\\s`.

A sub-tree of the trie says which kinds occur in it, a state of a text which kinds it lets through as a whole; so a walk
in the state of a `\\w+` leaves out all sub-trees of letters, in any script. A class of characters that cuts through a
kind is merely slower.
"""

from __future__ import annotations

import functools

import numpy as np

from ..._core import fsm as core
from ..columns import WIDE_DIGITS, WIDE_LETTERS, WIDE_NUMERALS, WIDE_OTHERS, WIDE_SEPARATORS, WIDE_SPACES
from .alphabet import Alphabet, complement
from .unicode_sets import Intervals, unicode_digits, unicode_letters, unicode_space, unicode_word

SEPARATORS: Intervals = ((0x2028, 0x2029),)


@functools.cache
def wide_kinds() -> core.WideKinds:
    """Made once per process: some 40 ms, most of it to ask Python which characters are letters."""
    digits, spaces = unicode_digits(), _without(unicode_space(), SEPARATORS)
    letters = unicode_letters()
    numerals = _without(unicode_word(), (*letters, *digits))
    alphabet, members = Alphabet.from_sets([letters, numerals, digits, spaces, SEPARATORS])
    kinds = np.full(alphabet.num_classes, WIDE_OTHERS, np.uint8)
    names = WIDE_LETTERS, WIDE_NUMERALS, WIDE_DIGITS, WIDE_SPACES, WIDE_SEPARATORS
    for kind, classes in zip(names, members, strict=True):
        kinds[classes] = kind
    kinds[0] = 0
    below = np.bitwise_or.reduce(np.where(alphabet.spelling.reach, kinds, np.uint8(0)), axis=1)
    return core.WideKinds(alphabet.template, kinds, below)


def _without(intervals: Intervals, others: Intervals) -> Intervals:
    """The characters of one set that are not in another."""
    return tuple(complement((*complement(intervals), *others)))
