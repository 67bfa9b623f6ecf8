"""Calls everything in `_core.fsm` with arguments of which one or two are wrong: run as a program, which must not crash.

Calls with right arguments are recorded while constraints are compiled and walked; then arguments are replaced: integers
by those out of range, arrays by ones of another size, dtype, layout or with wrong values, or by no array. A call may
then answer anything, or raise IndexError, ValueError or TypeError, what is documented of it, or MemoryError.

    python wrong_arguments.py SEED NUM_CALLS
"""

import random
import sys
import warnings
from collections.abc import Callable

import numpy as np

from phloem._core import fsm as core
from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.text.wide_kinds import wide_kinds

ALLOWED = (IndexError, ValueError, TypeError, MemoryError, core.OutOfWork, ConstraintTooLarge)
INTEGERS = (-1, 0, 1, 2, 31, 256, 257, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, -(1 << 63))
TOKENS = [*(bytes([byte]) for byte in range(256)), b'{"', b'":', b"ab", b"ab", b'",', "ä".encode(), b"12", b"]}", b"",
          b"eos"]  # fmt: skip
SCHEMAS = [
    {"type": "object", "properties": {"ab": {"type": "string", "maxLength": 9}, "n": {"multipleOf": 0.01}}},
    {"type": "array", "items": {"enum": ["a", "ab", 1, 12]}, "uniqueItems": True, "minItems": 2},
    {"type": "object", "required": ["a", "b"], "properties": {"a": {"minimum": 3.5}, "b": {"pattern": "^(ab?){2,5}$"}}},
]

NUM_TEXTS = 5  # where the number of texts stands in what `NetworkArrays` is made from

Call = tuple[str, Callable[..., object], tuple[object, ...]]


def recorded() -> list[Call]:
    """Right calls of the functions of the module, one or a few of each."""
    calls: list[Call] = []
    counts: dict[str, int] = {}
    originals = {
        name: getattr(core, name) for name in dir(core) if callable(getattr(core, name)) and not name.startswith("_")
    }

    def recording(name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= 6:
                kept = tuple(one.copy() if isinstance(one, np.ndarray) else one for one in arguments)
                calls.append((name, originals[name], kept))
            return originals[name](*arguments)

        return call

    for name, original in originals.items():
        if not isinstance(original, type) or name in ("Vocabulary", "NetworkArrays"):
            setattr(core, name, recording(name))
    try:
        _use_everything()
    finally:
        for name, original in originals.items():
            setattr(core, name, original)
    return calls + _functions() + _methods()


def _compiled() -> list[object]:
    compiler = Compiler(Vocabulary(TOKENS, [len(TOKENS) - 1]))
    found = [compiler.json_schema(schema, key_order=order) for schema in SCHEMAS for order in ("schema", "any")]
    found.append(compiler.regex(r"(a|é|\d){2,40}x"))
    found.append(compiler.choice(["one", "two", "twelve"]))
    found.append(compiler.grammar('root ::= "a" root "b" | [0-9]+'))
    found.append(compiler.grammar('start: (A B~3..5 | B~0..2 "cc")~2..3\nA: /a+b?/\nB: /b+c?/\n%ignore / /'))
    return found


def _use_everything() -> None:
    for constraint in _compiled():
        cursor = constraint.cursor()
        for _ in range(6):
            row = cursor.row()
            allowed = [token for token in range(len(TOKENS)) if int(row[token >> 5]) >> (token & 31) & 1]
            if not allowed or cursor.is_finished:
                break
            cursor.advance(allowed[len(allowed) // 2])


def _functions() -> list[Call]:
    """Right calls of functions whose results are kept once for all constraints, so that they may not be recorded."""
    table, accepting = np.array([[0, 0, 0], [0, 2, 1], [0, 0, 2]], np.int32), np.array([False, False, True])
    classes, symbols = np.array([0, 1, 2], np.int32), np.array([0, 1, 1], np.int64)
    lens = np.array([1, 2], np.int64)
    vocabulary = Vocabulary(TOKENS, [len(TOKENS) - 1])
    text, follow = b"abcab", np.ones(256, np.uint8)
    return [
        (function.__name__, function, arguments)
        for function, arguments in [
            (core.least_lengths, (table, accepting, 100)),
            (core.meet, (table, accepting, table, accepting, classes, classes, 1, 1, 100)),
            (core.trie_except, (symbols, lens, 4)),
            (core.literal_trie, (b"aab", lens, 0, 1, 0)),
            (core.token_ends, (vocabulary.trie, text, 1, follow)),
            (core.TokenTrie, (np.frombuffer(b"aababc", np.uint8), np.array([0, 1, 3, 6]), np.array([2, 0, 1], np.int32),
                              np.full(len(TOKENS), -1, np.int32), wide_kinds())),
            (core.takes, (np.array([0, 9], np.int32), np.array([1, 2], np.int32), table, accepting, 1,
                          np.array([3, 99, 9], np.int32), lens)),
        ]
    ]  # fmt: skip


def _methods() -> list[Call]:
    """Right calls of methods."""
    calls: list[Call] = []
    for constraint in _compiled():
        automaton = constraint.caches.automaton
        bound, network, text_of = automaton, automaton.network, automaton.network.texts
        is_key = np.array([index in network.key_texts for index in range(len(text_of))], np.uint8)
        made_of = automaton.vocabulary.core, network.laid, network.byte_sets, [text.core for text in text_of], is_key
        calls.append(("Automaton", core.Automaton, (*made_of, 1 << 20)))
        calls.append(("members", network.laid.members, (0,)))
        num_words = automaton.vocabulary.num_words
        state, token = bound.start, 97
        row = np.zeros(num_words, np.int32)
        bounds, judged = core.CompletionBounds(bound), core.Judged()
        for name in ("is_accepting", "has_bytes", "min_bytes", "key_place", "configurations", "texts", "live_bytes",
                     "stays_on_plain", "without_texts", "without_items"):  # fmt: skip
            calls.append((name, getattr(bound, name), (state,)))
        right: list[tuple[str, tuple[object, ...]]] = [
            ("frame", (0,)), ("advance", (state, token)), ("advance_bytes", (state, b'{"')), ("after_text", (state, 0)),
            ("forced_run", (state, 9)), ("begin_row", (state, 3, row)), ("walk", (state, row)),
            ("targets", (state, row)), ("is_filled", (0.5,)), ("allow", (1 << 20,)), ("charge", (5,)), ("spend", (5,)),
        ]  # fmt: skip
        starts, exits = np.zeros(257, np.int32), np.zeros(4, np.int32)
        starts[-1] = 4
        right += [("row_in_text", (state, state, 0, False, row, exits, starts, row)),
                  ("walk_exits", (False, state, exits, starts, row))]  # fmt: skip
        for text in text_of[:2]:
            for count in (0, 2**31 - 1):
                right.append(("walk_text", (text.core, text.core.start, count, 1 << 29, True, row)))
            calls.append(("are_alike", core.are_alike, (text.core, 1, 1, 4, 100)))
            calls.append(("copies_of", core.copies_of, (text.core,)))
        calls += [(name, getattr(bound, name), arguments) for name, arguments in right]
        right = [
            ("known", (state,)),
            ("tokens", (state,)),
            ("keys", (state,)),
            ("keep_within", (state, row, 30, 100, judged)),
        ]
        calls += [(name, getattr(bounds, name), arguments) for name, arguments in right]
        calls += [
            (function.__name__, function, arguments)
            for function, arguments in [
                (core.follow_keys, (bound, state, b'{"ab":', True)), (core.advance_keys, (bound, state, token, True)),
                (core.is_in_string, (bound, state)), (core.note_mode, (bound, state, 1)),
                (core.keys_left, (bound, state, [b"a", b"ab"], True)), (core.clear_below, (bound, b"ab", row)),
                (core.is_same_row, (row, row)), (core.hash_row, (row,)),
            ]
        ]  # fmt: skip
    return calls


def automaton_of(name: str, made: object, arguments: list[object]) -> object:
    """One that goes through what was made of wrong numbers: what it leads to is not known, but in bounds."""
    known = Compiler(Vocabulary(TOKENS, [len(TOKENS) - 1])).regex("(ab|é)*c").automaton
    network, vocabulary, texts = known.network, known.vocabulary, [text.core for text in known.network.texts]
    laid, in_core, byte_sets = network.laid, vocabulary.core, np.ones((64, 4), np.uint64)
    if name == "NetworkArrays":
        laid, texts = made, texts[:1] * int(arguments[0][NUM_TEXTS])  # type: ignore[index]
    elif name == "Vocabulary":
        in_core = made
    elif name == "TokenTrie":
        rows = vocabulary.plain_rows, vocabulary.all_words, vocabulary.eos_words
        in_core = core.Vocabulary(made, made, vocabulary.token_bytes, vocabulary.token_offsets, *rows)
        core.token_ends(made, b"abcab", 1, np.ones(256, np.uint8))
    return core.Automaton(in_core, laid, byte_sets, texts, np.zeros(len(texts), np.uint8), 1 << 20)


def wrong(argument: object, chance: random.Random) -> object:
    """Something else in the place of an argument."""
    if chance.random() < 0.05:
        return chance.choice([None, "a", 1.5, [], np.zeros((2, 2, 2)), object()])
    if isinstance(argument, bool):
        return not argument
    if isinstance(argument, int):
        return chance.choice([*INTEGERS, argument + 1, argument - 1])
    if isinstance(argument, bytes):
        return chance.choice([b"", argument[:-1], argument + b"\xff", argument[::-1], argument * 3, b"\x80\\"])
    if isinstance(argument, list):
        return chance.choice([argument[:-1], argument * 2, [None], []])
    if isinstance(argument, np.ndarray):
        return _wrong_array(argument, chance)
    return chance.choice([None, 0, argument])


def _wrong_array(array: np.ndarray, chance: random.Random) -> object:
    turn = chance.randrange(9)
    if turn == 0:
        return array.astype(chance.choice([np.int8, np.float32, np.int64, np.uint64, np.complex64]))
    if turn == 1:
        return np.zeros((*array.shape, 2), array.dtype)[..., 0]
    if turn == 2:
        return array[: len(array) // 2]
    if turn == 3:
        return np.concatenate([array, array])
    if turn == 4:
        return array[:0]
    if turn == 5:
        return array.reshape(-1) if array.ndim > 1 else array.reshape(1, -1)
    if turn == 6:
        found = array.copy()
        found.flags.writeable = False
        return found
    found = array.copy()
    if found.size and found.dtype != np.bool_:
        bounds = np.iinfo(found.dtype)
        for _ in range(chance.choice([1, 1, 3])):
            place = chance.randrange(found.size)
            value = int(found.flat[place]) + chance.choice([-1, 1, 2, 1000])
            value = chance.choice([value, bounds.min, bounds.max, 0, found.size])
            found.flat[place] = max(min(value, bounds.max), bounds.min)
    return found


def main(seed: int, num_calls: int) -> None:
    warnings.simplefilter("ignore")  # numpy's, of casts
    chance = random.Random(seed)
    calls = recorded()
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        by_name.setdefault(call[0], []).append(call)
    names = sorted(by_name)
    for turn in range(num_calls):
        name, function, arguments = chance.choice(by_name[names[turn % len(names)]])
        changed = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
        for place in chance.sample(range(len(changed)), min(len(changed), chance.choice([1, 1, 2]))):
            changed[place] = wrong(changed[place], chance)
        try:
            made = function(*changed)
            if name in ("Automaton", "NetworkArrays", "TokenTrie", "Vocabulary"):
                made = made if name == "Automaton" else automaton_of(name, made, changed)
                row = np.zeros(len(TOKENS) // 32 + 1, np.int32)
                made.allow(2000)
                made.walk(made.start, row)
                core.CompletionBounds(made).tokens(made.start)
                core.CompletionBounds(made).keys(made.start)
        except ALLOWED:
            pass
    print("called", len(names), "functions:", *names)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
