"""What grammars cost, next to llguidance and XGrammar: until the first mask, per mask, per token.

    python bench/studies/grammars.py [VOCABULARY] [--repeats 5]

VOCABULARY as in `real_vocabularies` (a tekken file, a sentencepiece model, a folder); the bundled one if it is left
out. Every engine reads the same sentences, tokenised once, under a grammar in its own notation; phloem reads both.
A mask is made before each token: once by a constraint that has just been compiled (cold), and once more after it has
been walked through (warm, as for the second request). CPU time, microseconds; ratios are theirs to ours, so above 1
is faster here. Engines that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np
from real_vocabularies import read_vocabulary

from phloem.fsm import Compiler, Constraint, Vocabulary

JSON_EBNF = r"""
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
ws ::= [ \t\n]*
"""
JSON_LARK = r"""
start: value
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" [pair ("," pair)*] "}"
pair: STRING ":" value
array: "[" [value ("," value)*] "]"
STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
WS: /[ \t\n]+/
%ignore WS
"""
SUM_EBNF = r"""
root ::= ws sum
sum ::= sum [+-] ws product | product
product ::= product [*/] ws atom | atom
atom ::= ([0-9]+ ("." [0-9]+)? | [a-z]+) ws | "(" ws sum ")" ws | "-" ws atom
ws ::= " "*
"""
SUM_LARK = r"""
start: sum
sum: product | sum ("+" | "-") product
product: atom | product ("*" | "/") atom
atom: NUMBER | NAME | "(" sum ")" | "-" atom
NUMBER: /[0-9]+(\.[0-9]+)?/
NAME: /[a-z]+/
%ignore / +/
"""
SQL_EBNF = r"""
root ::= "select" sp columns " from " name (" where " condition)? (" limit " [0-9]+)? ";"?
columns ::= "*" | name ("," ws name)*
condition ::= comparison (sp ("and" | "or") sp comparison)*
comparison ::= name ws ("=" | "<" | ">" | "<=" | ">=" | "<>") ws ([0-9]+ | "'" [^'\n]* "'") | "not" sp comparison
name ::= [a-z_] [a-z_0-9]*
sp ::= [ \n]+
ws ::= [ \n]*
"""
SQL_LARK = r"""
start: "select" columns "from" NAME ["where" condition] ["limit" INT] [";"]
columns: "*" | NAME ("," NAME)*
condition: comparison (("and" | "or") comparison)*
comparison: NAME OPERATOR (INT | STRING) | "not" comparison
OPERATOR: "=" | "<" | ">" | "<=" | ">=" | "<>"
NAME: /[a-z_][a-z_0-9]*/
STRING: /'[^'\n]*'/
INT: /[0-9]+/
%ignore /[ \n]+/
"""
C_EBNF = r"""
root ::= ws function+
function ::= type sp name ws "(" ws (type sp name ws ("," ws type sp name ws)*)? ")" ws block
block ::= "{" ws statement* "}" ws
statement ::= "return" sp expr ";" ws | "if" ws "(" ws expr ")" ws statement ("else" sp statement)? | block
  | name ws "=" ws expr ";" ws
expr ::= expr ("+" | "<" | "==") ws term | term
term ::= name ws | number ws | name ws "(" ws (expr ("," ws expr)*)? ")" ws | "(" ws expr ")" ws
type ::= "int" | "char" "*"?
name ::= [a-z] [a-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
sp ::= [ \n]+
ws ::= [ \n]*
"""
C_LARK = r"""
start: function+
function: TYPE NAME "(" [TYPE NAME ("," TYPE NAME)*] ")" block
block: "{" statement* "}"
statement: "return" expr ";" | "if" "(" expr ")" statement ["else" statement] | block | NAME "=" expr ";"
expr: expr ("+" | "<" | "==") term | term
term: NAME | NUMBER | NAME "(" [expr ("," expr)*] ")" | "(" expr ")"
TYPE: "int" | "char" | "char*"
NAME: /[a-z][a-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]+)?/
%ignore /[ \n]+/
"""
JSON_TEXT = json.dumps(
    {
        "name": "Ada Lovelace",
        "born": 1815,
        "known for": ["notes on the engine", {"pages": 66, "translated": True, "ratio": -2.5e-3}],
        "motto": "That brain of mine is more than merely mortal, as time will show.\n",
        "none": None,
    },
    indent=2,
)
SUM_TEXT = "(price - 12.5) * count / -(3 + tax) + (a + b + (c * (d - 7))) * 100 - total"
SQL_TEXT = "select id, name, created_at from customers where age >= 21 and city <> 'San Marino' limit 50;"
C_TEXT = "int fib(int n, char* s) {\n  if (n < 2) return n; else {\n    x = fib(n + 1, s);\n  }\n  return x + 1;\n}\n"
CALL = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TAGS = {
    "type": "structural_tag",
    "structures": [
        {"begin": f"<function={name}>", "schema": {**CALL, "additionalProperties": False}, "end": "</function>"}
        for name in ("weather", "tides")
    ],
    "triggers": ["<function="],
}
TAGS_TEXT = (
    "Let me look that up; the forecast changes by the hour, so I will ask twice.\n"
    '<function=weather>{"city":"Oslo","days":3}</function>\nAnd the sea:\n<function=tides>{"city":"Bergen"}</function>'
    " So far as I can see, nothing speaks against a swim."
)
OPTIONS = [f"{word} {number:04d}" for word in ("order", "ticket", "invoice", "parcel") for number in range(2500)]
OPTIONS_TEXT = OPTIONS[6543]

Ints = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Topic:
    """One language in the notations of the engines, and a sentence of it."""

    name: str
    text: str
    sources: dict[str, object]


class Matcher(Protocol):
    """A place in a text."""

    def mask(self) -> object: ...

    def advance(self, token_id: int) -> bool: ...


Engine = Callable[[Topic, int], "Callable[[], Matcher] | None"]


def topics() -> list[Topic]:
    """All languages."""
    pairs = [
        ("json", JSON_TEXT, JSON_EBNF, JSON_LARK),
        ("arithmetic", SUM_TEXT, SUM_EBNF, SUM_LARK),
        ("sql", SQL_TEXT, SQL_EBNF, SQL_LARK),
        ("c-like", C_TEXT, C_EBNF, C_LARK),
    ]
    found = [Topic(name, text, {"ebnf": ebnf.strip(), "lark": lark.strip()}) for name, text, ebnf, lark in pairs]
    found.append(Topic("tags", TAGS_TEXT, {"tags": TAGS}))
    alternatives = " | ".join(json.dumps(option) for option in OPTIONS)
    choice = {"choice": OPTIONS, "ebnf": f"root ::= {alternatives}", "lark": f"start: {alternatives}"}
    return [*found, Topic("choice of 10,000", OPTIONS_TEXT, choice)]


def phloem(vocabulary: Vocabulary, notation: str) -> Engine:
    """Ours; a comment keeps the cache from knowing a grammar again."""
    compiler = Compiler(vocabulary)
    compiler.warm_up()

    class Place:
        def __init__(self, constraint: Constraint) -> None:
            cursor = constraint.cursor()
            self.mask, self.advance = cursor.row, cursor.advance

    def engine(topic: Topic, repeat: int) -> Callable[[], Matcher] | None:
        source: Any = topic.sources.get(notation)
        if source is None or (notation != "choice" and "choice" in topic.sources):
            return None
        if notation == "tags":
            constraint = compiler.structural_tag({**source, "repeat": repeat})
        elif notation == "choice":
            constraint = compiler.choice([*source, str(repeat)])
        else:
            constraint = compiler.grammar(f"{source}\n{'#' if notation == 'ebnf' else '//'} {repeat}", notation)
        return lambda: Place(constraint)

    return engine


def xgrammar(vocabulary: Vocabulary) -> Engine:
    """XGrammar, EBNF and structural tags; its cache is off."""
    import torch
    import xgrammar as xgr

    torch.set_num_threads(1)
    tokens = list(vocabulary.tokens)
    stop = list(vocabulary.eos_ids)
    info = xgr.TokenizerInfo(tokens, xgr.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=stop)
    compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgr.allocate_token_bitmask(1, len(tokens))

    class Place:
        def __init__(self, compiled: Any) -> None:
            self._matcher = xgr.GrammarMatcher(compiled)
            self.advance = self._matcher.accept_token

        def mask(self) -> object:
            self._matcher.fill_next_token_bitmask(bits)
            return bits

    def engine(topic: Topic, repeat: int) -> Callable[[], Matcher] | None:
        if "tags" in topic.sources:
            compiled = compiler.compile_structural_tag(json.dumps(_newer(topic.sources["tags"])))
        else:
            compiled = compiler.compile_grammar(xgr.Grammar.from_ebnf(str(topic.sources["ebnf"])))
        return lambda: Place(compiled)

    return engine


def _newer(tags: Any) -> dict[str, Any]:
    """The same tags in XGrammar's newer form."""
    listed = [
        {
            "type": "tag",
            "begin": tag["begin"],
            "content": {"type": "json_schema", "json_schema": tag["schema"]},
            "end": tag["end"],
        }
        for tag in tags["structures"]
    ]
    return {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": tags["triggers"], "tags": listed},
    }


def llguidance(vocabulary: Vocabulary) -> Engine:
    """llguidance, Lark and its own structural tags."""
    import llguidance as llg
    import llguidance.numpy as llg_numpy

    def encode(text: object) -> list[int]:
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        return vocabulary.encode(shown) if vocabulary.encode is not None else []

    class Tokens:
        eos_token_id, bos_token_id = vocabulary.eos_ids[0], None
        tokens = tuple(token or b"<special_%d>" % index for index, token in enumerate(vocabulary.tokens))
        special_token_ids = tuple(index for index, token in enumerate(vocabulary.tokens) if not token)

        def __call__(self, text: object) -> list[int]:
            return encode(text)

    tokenizer = llg.LLTokenizer(llg.TokenizerWrapper(Tokens()))
    bits = llg_numpy.allocate_token_bitmask(1, vocabulary.size)
    address, size = bits.ctypes.data, bits.nbytes

    class Place:
        def __init__(self, grammar: str) -> None:
            self._matcher = llg.LLMatcher(tokenizer, grammar, log_level=0)
            if self._matcher.is_error():
                raise ValueError(self._matcher.get_error())
            self.advance = self._matcher.consume_token

        def mask(self) -> object:
            self._matcher.unsafe_compute_mask_ptr(address, size)
            return bits

    def engine(topic: Topic, repeat: int) -> Callable[[], Matcher] | None:
        if "tags" in topic.sources:
            tags: Any = topic.sources["tags"]
            listed = [
                llg.StructTag(
                    trigger=tags["triggers"][0],
                    begin=tag["begin"],
                    grammar={**tag["schema"], "x-guidance": {"whitespace_flexible": False}},
                    end=tag["end"],
                )
                for tag in tags["structures"]
            ]
            grammar = llg.StructTag.to_grammar(listed)
        else:
            grammar = llg.grammar_from("lark", str(topic.sources["lark"]))
        return lambda: Place(grammar)

    return engine


@dataclass(frozen=True)
class Figures:
    """Microseconds: until the first mask; masks cold and warm (median, 99th percentile); one token."""

    first: float
    cold: list[float]
    warm: list[float]
    advance: float


def measured(engine: Engine, topic: Topic, token_ids: list[int], repeats: int) -> Figures | None:
    """The figures of one engine, medians over the repeats."""
    firsts, colds, warms, advances = [], [], [], []
    for repeat in range(repeats):
        begin = time.process_time_ns()
        start = engine(topic, repeat)
        if start is None:
            return None
        place = start()
        place.mask()
        firsts.append((time.process_time_ns() - begin) / 1e3)
        for masks in (colds, warms):
            place = start()
            for token_id in token_ids:
                begin = time.process_time_ns()
                place.mask()
                middle = time.process_time_ns()
                accepted = place.advance(token_id)
                end = time.process_time_ns()
                if not accepted:
                    raise ValueError("fails: it refuses a token of the sentence")
                masks.append((middle - begin) / 1e3)
                advances.append((end - middle) / 1e3)
    return Figures(
        median(firsts), *([median(m), float(np.percentile(m, 99))] for m in (colds, warms)), median(advances)
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("vocabulary", nargs="?", default="nano")
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    vocabulary = read_vocabulary(options.vocabulary)
    if vocabulary.encode is None:
        raise SystemExit("the vocabulary needs its tokeniser (install tiktoken)")
    engines = {f"phloem {notation}": phloem(vocabulary, notation) for notation in ("ebnf", "lark", "tags", "choice")}
    for name, make in (("xgrammar", xgrammar), ("llguidance", llguidance)):
        try:
            engines[name] = make(vocabulary)
        except ImportError:
            print(f"{name} is not installed")
    print(f"{vocabulary.size} tokens, CPU microseconds, medians of {options.repeats}\n")
    titles = ("first mask", "cold p50", "cold p99", "warm p50", "warm p99", "advance")
    print(f"{'':34}" + "".join(f"{title:>12}" for title in titles))
    for topic in topics():
        token_ids = vocabulary.encode(topic.text)
        ours: list[float] | None = None
        for name, engine in engines.items():
            try:
                figures = measured(engine, topic, token_ids, options.repeats)
            except (ValueError, RuntimeError) as error:
                print(f"{topic.name:18}{name:16}{str(error).splitlines()[0][:80]}")
                continue
            if figures is None:
                continue
            row = [figures.first, *figures.cold, *figures.warm, figures.advance]
            shown = "".join(f"{value:12.1f}" for value in row)
            print(f"{topic.name:18}{name:16}{shown}")
            if name.startswith("phloem"):
                ours = ours or row
            elif ours is not None:
                ratios = "".join(f"{theirs / mine:11.1f}x" for theirs, mine in zip(row, ours, strict=True))
                print(f"{'':18}{'':16}{ratios}")
        print()


if __name__ == "__main__":
    main()
