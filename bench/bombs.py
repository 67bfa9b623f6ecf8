"""Inputs made to hurt: each must end soon, in a constraint or in an error that names its place.

    python bench/bombs.py [TOKENIZER] [--only TEXT] [--limit SECONDS]

Every bomb runs in a process of its own, warmed up before the clock starts, over the vocabulary of TOKENIZER (a folder
with `tokenizer.model` or `tokenizer.json`; by default the bundled model's). Printed are the CPU seconds until the
first mask or the error, the peak memory that this added, and what came of it; "SLOW" is written beside what took
longer than --limit (1 second by default).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import phloem
from phloem.errors import PhloemError
from phloem.fsm import Compiler, Constraint
from phloem.runtime.tokenizer.tokenizer import Tokenizer

MEBIBYTE = 1 << 20
MOST_MEMORY = 8 << 30
GIVE_UP_AFTER = 60  # seconds

Bomb = Callable[[Compiler], Constraint]


def bombs() -> dict[str, Bomb]:
    """All bombs by name."""
    found: dict[str, Bomb] = {}
    for name, schema in schemas():
        found[f"schema: {name}"] = lambda compiler, schema=schema: compiler.json_schema(schema)
    for name, pattern in patterns():
        found[f"regex: {name}"] = lambda compiler, pattern=pattern: compiler.regex(pattern)
    for count in (10_000, 100_000):
        options = [f"option {index * 7919 % count} of {count}" for index in range(count)]
        found[f"choice of {count}"] = lambda compiler, options=options: compiler.choice(options)
    for name, text in grammars():
        found[f"grammar: {name}"] = lambda compiler, text=text: compiler.grammar(text)
    return found


def schemas() -> Iterator[tuple[str, Any]]:
    """Schemas: wide, deep, circular, and with many ways to be true."""
    many = {f"property_{index}": {"type": "string"} for index in range(10_000)}
    yield "10,000 properties", {"type": "object", "properties": many}
    yield "10,000 required properties", {"type": "object", "properties": many, "required": list(many)}
    yield "10,000 properties and no others", {"type": "object", "properties": many, "additionalProperties": False}
    objects = {name: {"type": "object", "properties": {name: {"type": "integer"}}} for name in many}
    yield "10,000 properties that are objects", {"type": "object", "properties": objects}
    yield "maxProperties over 1,000", {"properties": dict(list(many.items())[:1000]), "maxProperties": 500}
    yield "enum of 100,000", {"enum": [f"value {index}" for index in range(100_000)]}
    yield "enum of 100,000 numbers", {"enum": list(range(100_000))}
    yield "enum of 10,000 objects", {"enum": [{"a": index, "b": [index]} for index in range(10_000)]}
    yield "mutual $ref", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    circle = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{(i + 1) % 1000}"}]} for i in range(1000)}
    yield "circle of 1,000 allOf", {"$ref": "#/$defs/d0", "$defs": circle}
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"minimum": i}]} for i in range(1000)}
    yield "chain of 1,000 allOf", {"$ref": "#/$defs/d0", "$defs": {**chain, "d1000": {"type": "integer"}}}
    twice = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    yield "60 doublings by allOf", {"$ref": "#/$defs/d0", "$defs": {**twice, "d60": {"type": "integer"}}}
    either = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    yield "60 doublings by anyOf", {"$ref": "#/$defs/d0", "$defs": {**either, "d60": {"type": "integer"}}}
    spread = {
        f"d{i}": {"properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}, "type": "object"} for i in range(60)
    }
    yield "60 doublings by properties", {"$ref": "#/$defs/d0", "$defs": {**spread, "d60": {"type": "integer"}}}
    for depth in (1000, 30_000):
        nested: dict[str, Any] = {"type": "integer"}
        for _ in range(depth):
            nested = {"type": "object", "properties": {"a": nested}, "required": ["a"]}
        yield f"{depth} objects within each other", nested
    lists: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        lists = {"items": lists}
    yield "1000 arrays within each other", lists
    yield "30,000 brackets as JSON text", '{"not":' * 30_000 + "{}" + "}" * 30_000
    refused: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        refused = {"not": refused}
    yield "1000 nots", refused
    for keyword in ("anyOf", "oneOf"):
        strings = [{"type": "string", "pattern": f"^{index}"} for index in range(1000)]
        yield f"{keyword} of 1,000 patterns", {keyword: strings}
        tagged = [{"properties": {"tag": {"const": index}}, "required": ["tag"]} for index in range(1000)]
        yield f"{keyword} of 1,000 tagged values", {keyword: tagged}
        yield f"{keyword} of 1,000 tagged objects", {"type": "object", keyword: tagged}
        keyed = [{"properties": {f"k{index}": {"type": "integer"}}} for index in range(1000)]
        yield f"{keyword} of 1,000 open objects", {keyword: keyed}
    twofold = [{"anyOf": [{"required": [f"a{i}"]}, {"properties": {f"b{i}": {"type": "integer"}}}]} for i in range(30)]
    yield "allOf of 30 anyOf", {"type": "object", "allOf": twofold}
    found = {f"[{chr(97 + i)}{chr(98 + i)}].*[{chr(99 + i)}x]": {"minimum": i} for i in range(20)}
    yield "20 patterns of properties that overlap", {"type": "object", "patternProperties": found}
    lengths = [{"pattern": f"^(.{{{n}}})*$"} for n in (2, 3, 5, 7, 11, 13, 17, 19, 23)]
    yield "patterns with a long common period", {"type": "string", "allOf": lengths}
    yield "long strings", {"type": "string", "minLength": 10**6, "maxLength": 10**9}
    yield "uniqueItems over an enum of 100", {"items": {"enum": list(range(100))}, "uniqueItems": True}
    yield "contains 1,000 times", {"contains": {"minimum": 5}, "minContains": 1000, "maxContains": 2000}
    yield "multipleOf and bounds of 300 digits", {"type": "integer", "minimum": 10**300, "multipleOf": 10**299 + 7}


def patterns() -> Iterator[tuple[str, str]]:
    """Regular expressions that explode when they are unrolled, determinised or backtracked."""
    yield "(.{1,1000}){1,1000}", "(.{1,1000}){1,1000}"
    yield "[ab]*a[ab]{30}", "[ab]*a[ab]{30}"
    yield "nested quantifiers", "((a{1,100}){1,100}){1,100}"
    yield "(a*)*b", "(a*)*b"
    yield "(x+x+)+y", "(x+x+)+y"
    yield "30,000 nested groups", "(" * 30_000 + "a" + ")" * 30_000
    yield "30,000 open brackets", "(" * 30_000
    yield "30,000 nested optional groups", "(" * 30_000 + "a" + ")?" * 30_000
    yield "100,000 alternatives", "|".join(f"w{index}" for index in range(100_000))
    yield r"(\p{L}{1,100}\d?){1,100}", r"(\p{L}{1,100}\d?){1,100}"
    yield "look-aheads for 12 letters", "".join(f"(?=.*{chr(97 + i)})" for i in range(12)) + ".*"
    yield ".*a.{20}", ".*a.{20}"
    yield "(.{1,1000}b?){1,1000}", "(.{1,1000}b?){1,1000}"
    yield "(?:[ab]{0,500}){0,500}c", "(?:[ab]{0,500}){0,500}c"


def grammars() -> Iterator[tuple[str, str]]:
    """Grammars: long chains, deep brackets, ambiguity."""
    yield "30,000 nested brackets", "root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000
    rules = "\n".join(f'r{index} ::= "a" r{index + 1} | "b"' for index in range(10_000))
    yield "chain of 10,000 rules", f'root ::= r0\n{rules}\nr10000 ::= "c"'
    doubling = "\n".join(f"r{index} ::= r{index + 1} r{index + 1}" for index in range(100))
    yield "100 doublings", f'root ::= r0\n{doubling}\nr100 ::= "a"'
    yield "ambiguous", 'root ::= (root2)* \nroot2 ::= "a" | "aa" | "a" root2'


def peak_bytes(*, reset: bool = False) -> int:
    """The greatest memory of this process so far; `reset`: counted anew from now on, where the system can do that."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def explode(name: str, tokenizer: str, connection: Any) -> None:
    """Runs one bomb and sends (seconds, bytes, outcome)."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    compiler = Compiler(Tokenizer.from_folder(tokenizer).vocabulary())
    compiler.warm_up()
    bomb = bombs()[name]
    before = peak_bytes(reset=True)
    begin = time.process_time()
    try:
        constraint = bomb(compiler)
        constraint.cursor().row()
        outcome = f"compiled, {constraint.automaton.network.num_nodes} nodes"
    except PhloemError as error:
        outcome = f"{type(error).__name__}: {str(error)[:110]}"
    except BaseException as error:  # what must never happen is what this is for
        outcome = f"FAULT {type(error).__name__}: {str(error)[:90]}"
    seconds = time.process_time() - begin
    connection.send((seconds, peak_bytes() - before, outcome))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("tokenizer", nargs="?", default="")
    arguments.add_argument("--only", default="", help="only bombs whose name contains this")
    arguments.add_argument("--limit", type=float, default=1.0, help="CPU seconds that are allowed")
    options = arguments.parse_args()
    folder = options.tokenizer or str(Path(phloem.__file__).parent / "runtime" / "assets" / "nano")
    context = multiprocessing.get_context("fork")
    print("| bomb | seconds | MiB | outcome |\n|:--|--:|--:|:--|")
    for name in bombs():
        if options.only not in name:
            continue
        ours, theirs = context.Pipe()
        process = context.Process(target=explode, args=(name, folder, theirs))
        process.start()
        theirs.close()
        try:
            seconds, size, outcome = ours.recv() if ours.poll(GIVE_UP_AFTER) else (GIVE_UP_AFTER, 0, "FAULT no end")
        except EOFError:
            seconds, size, outcome = 0.0, 0, "FAULT the process died"
        process.kill()
        process.join()
        slow = " SLOW" if seconds > options.limit else ""
        print(f"| {name} | {seconds:.2f}{slow} | {size / MEBIBYTE:.0f} | {json.dumps(outcome)[1:-1]} |", flush=True)


if __name__ == "__main__":
    main()
