"""Keywords in any case by the hundred: how long grammars with them compile, next to llguidance.

    python bench/studies/keywords.py [--repeats 3]

Grammars in Lark's notation and EBNF of 10 to 400 keywords, and a large part of SQL (`sql.lark`). CPU milliseconds to
compile and to the first mask, the least of the repeats; the vocabulary is that of all bytes. Where llguidance is not
installed its columns are left out.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Limits, Vocabulary

SIZES = (10, 50, 100, 200, 400)
NAME = "NAME: /[a-z_][a-z0-9_]*/i\n%import common.WS\n%ignore WS\n"
PARTS = ("select", "in", "order", "by", "with", "create", "table", "on", "to", "add", "current", "row", "time", "zone")
WORDS = list(dict.fromkeys(["_".join(parts) for n in (1, 2, 3) for parts in itertools.product(PARTS, repeat=n)]))


def separate(size: int) -> str:
    """Each keyword a literal, anywhere among names."""
    keywords = " | ".join(f'"{word}"i' for word in WORDS[:size])
    return f"start: (keyword | NAME)+\nkeyword: {keywords}\n{NAME}"


def clauses(size: int) -> str:
    """Rules that begin with keywords of their own."""
    words = WORDS[:size]
    rules = [f'c{n}: "{words[n]}"i "{words[n + 1]}"i NAME' for n in range(0, size, 2)]
    return (
        f"start: clause+\nclause: {' | '.join(rule.split(':')[0] for rule in rules)}\n" + "\n".join(rules) + f"\n{NAME}"
    )


def joined(size: int) -> str:
    """All keywords as one terminal, which takes its longest match."""
    keywords = " | ".join(f'"{word}"i' for word in WORDS[:size])
    return f"start: (KEYWORD NAME)+\nKEYWORD: {keywords}\n{NAME}"


def ebnf(size: int) -> str:
    """Rules that spell keywords letter by letter."""
    rules = [
        f"k{n} ::= " + " ".join(f"[{c}{c.upper()}]" if c.isalpha() else f'"{c}"' for c in word)
        for n, word in enumerate(WORDS[:size])
    ]
    options = " | ".join(f"k{n} ws name ws" for n in range(size))
    ends = "ws ::= [ \\t\\n]+\nname ::= [a-zA-Z_] [a-zA-Z0-9_]*\n"
    return f"root ::= (statement)+\nstatement ::= {options}\n" + "\n".join(rules) + f"\n{ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    engines: dict[str, Callable[[str], Any]] = {"phloem": phloem()}
    try:
        engines["llguidance"] = llguidance()
    except ImportError:
        print("llguidance is not installed")
    sql = (Path(__file__).parent / "sql.lark").read_text("utf-8")
    cases = [(f"{make.__name__} {n}", make(n)) for make in (separate, clauses, joined, ebnf) for n in SIZES]
    for name, text in [*cases, ("sql", sql)]:
        for engine, compiled in engines.items():
            print(f"{name:16} {engine:12} {measured(compiled, text, repeats)}", flush=True)


def measured(compiled: Callable[[str], Any], text: str, repeats: int) -> str:
    """Milliseconds to compile and to the first mask; or why not."""
    found = []
    for turn in range(repeats):
        begin = time.process_time()
        try:
            mask = compiled(text + "\n" * turn)  # another text, so that nothing is kept
        except (PhloemError, ValueError) as error:
            return f"refused: {str(error)[:80]}"
        middle = time.process_time()
        mask()
        found.append((middle - begin, time.process_time() - middle))
    return f"{1000 * min(found)[0]:8.1f} ms {1000 * min(found)[1]:8.2f} ms"


def phloem() -> Callable[[str], Any]:
    """Compiles with phloem; what is returned makes the first mask."""
    compiler = Compiler(
        Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256]), limits=Limits(max_compile_seconds=10)
    )
    compiler.warm_up()
    return lambda text: compiler.grammar(text).cursor().row


def llguidance() -> Callable[[str], Any]:
    """The same with llguidance, which does not read EBNF."""
    import llguidance as peer  # type: ignore[import-not-found, unused-ignore]

    class Tokens:
        eos_token_id, bos_token_id, unk_token_id, special_token_ids = 256, None, None, (256,)
        tokens = (*[bytes((byte,)) for byte in range(256)], b"<eos>")

        def __call__(self, text: str | bytes) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    tokenizer = peer.LLTokenizer(peer.TokenizerWrapper(Tokens()))

    def compiled(text: str) -> Any:
        if "::=" in text:
            raise ValueError("no EBNF")
        matcher = peer.LLMatcher(tokenizer, peer.LLMatcher.grammar_from_lark(text))
        if matcher.get_error():
            raise ValueError(matcher.get_error())
        return matcher.compute_bitmask

    return compiled


if __name__ == "__main__":
    main()
