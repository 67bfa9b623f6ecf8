"""phloem under the schema and regex yardstick that speaks the `project:` protocol.

    PYTHONPATH=bench python maskbench.py schemas CASES TOKENIZER project:maskbench_adapter:matcher
    PYTHONPATH=bench python maskbench.py regex         TOKENIZER project:maskbench_adapter:matcher

`matcher` takes the keys of an object in any order, as a validator does; `ordered` only in the order of the schema,
which is what users get if they do not ask for the other; `strict` in that order, and none that the schema does not name
(`extra_keys="never"`), which is how other engines' strict modes read a schema.

A matcher is a cursor; one compiler is kept per vocabulary. Nothing is kept between schemas except what a server
keeps as well: rows inside strings and numbers, and automata of patterns.

`prepare` does what `phloem serve` does at its start: it warms the compiler up, takes all that is there by then out of
the sight of the garbage collector, lets it look for garbage less often (`phloem.runtime.engine.gc_tuning`), and moves
memory to huge pages (`phloem.runtime.execute.huge_pages`).
"""

from __future__ import annotations

from typing import Any

import phloem
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.any_json import ExtraKeys, KeyOrder
from phloem.fsm.foresight import forced_bytes
from phloem.runtime.engine.gc_tuning import settle
from phloem.runtime.execute.huge_pages import gather

__version__ = getattr(phloem, "__version__", "0")


class Matcher:
    """A cursor with the names that the yardstick uses."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self.reset()

    def reset(self) -> None:
        cursor = self._constraint.cursor()
        self._cursor = cursor
        self.mask = cursor.row
        self.advance = cursor.advance

    def is_accepting(self) -> bool:
        return self._cursor.is_accepting

    def forced(self) -> bytes:
        return forced_bytes(self._cursor)


class _Adapter:
    """Callable with the attributes of the protocol."""

    whitespace = "compact"

    def __init__(self, key_order: KeyOrder, extra_keys: ExtraKeys = "schema") -> None:
        self._key_order: KeyOrder = key_order
        self._extra_keys: ExtraKeys = extra_keys
        self._compilers: dict[int, tuple[list[bytes], Compiler]] = {}

    def compiler(self, vocab: list[bytes], eos_id: int) -> Compiler:
        kept = self._compilers.get(id(vocab))
        if kept is None:
            kept = self._compilers[id(vocab)] = vocab, Compiler(Vocabulary(vocab, [eos_id]))
        return kept[1]

    def prepare(self, vocab: list[bytes], eos_id: int) -> None:
        self.compiler(vocab, eos_id).warm_up()
        settle()
        gather()

    def regex(self, pattern: str, vocab: list[bytes], eos_id: int) -> Matcher:
        return Matcher(self.compiler(vocab, eos_id).regex(pattern))

    def __call__(self, schema: Any, vocab: list[bytes], eos_id: int) -> Matcher:
        compiler = self.compiler(vocab, eos_id)
        return Matcher(compiler.json_schema(schema, key_order=self._key_order, extra_keys=self._extra_keys))


matcher = _Adapter("any")
ordered = _Adapter("schema")
strict = _Adapter("schema", "never")
