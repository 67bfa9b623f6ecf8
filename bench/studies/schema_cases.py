"""JSON Schema cases against the judge: what compiles, what is accepted, what random walks write.

    python bench/studies/schema_cases.py FOLDER [--only TEXT] [--limit N] [--walks N] [--seed S] [--whitespace STYLE]
           [--key-order ORDER] [--draft URI]

FOLDER holds files `{"schema": …, "tests": [{"valid": bool, "data": …}, …]}`, or lists of such groups (the layout of
the official test suite). For every case: does it compile (and if not, why), are valid instances accepted and invalid
ones refused, and do `--walks` random texts from the automaton validate under `jsonschema` with the schema's own
draft. The vocabulary is that of all bytes.

A walk picks live bytes at random, and after a while the shortest way out. "wrong order" counts valid instances that
are accepted once their keys are put into the documented order, that is, instances which only their order keeps out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from jsonschema.validators import validator_for

from phloem.errors import ConstraintError, PhloemError
from phloem.fsm import Compiler, Constraint, Vocabulary

SEPARATORS = {"compact": (",", ":"), "spaced": (", ", ": "), "flexible": (", ", ": ")}


@dataclass
class Result:
    """What became of one case."""

    name: str
    error: str = ""
    pointer: str = ""
    message: str = ""
    seconds: float = 0.0
    refused: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    num_valid: int = 0
    num_invalid: int = 0
    num_walks: int = 0
    bad_walks: list[str] = field(default_factory=list)
    fingerprint: str = ""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--only", default="", help="only files whose name contains this")
    arguments.add_argument("--limit", type=int, default=0, help="only the first N cases")
    arguments.add_argument("--walks", type=int, default=3, help="random texts per case")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--draft", default="", help="$schema of the cases that name none")
    arguments.add_argument("--whitespace", choices=list(SEPARATORS), default="compact")
    arguments.add_argument("--key-order", choices=("schema", "any"), default="schema")
    arguments.add_argument("--verbose", action="store_true", help="print every case that is not right")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    compiler = Compiler(Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256]))
    compiler.json_schema({"type": "object"})
    results = []
    for name, group in list(cases(options.folder, options.only))[: options.limit or None]:
        if options.draft and isinstance(group["schema"], dict):
            group = {**group, "schema": {"$schema": options.draft, **group["schema"]}}
        results.append(run(name, group, compiler, options))
        if options.verbose:
            show(results[-1])
    print(table(results))


def cases(folder: Path, only: str) -> list[tuple[str, dict[str, Any]]]:
    """All cases of a folder by name."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        if only not in path.name:
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        groups = content if isinstance(content, list) else [content]
        for index, group in enumerate(groups):
            if isinstance(group, dict) and "schema" in group:
                found.append((path.name if len(groups) == 1 else f"{path.name}#{index}", group))
    return found


def run(name: str, group: dict[str, Any], compiler: Compiler, options: argparse.Namespace) -> Result:
    """One case."""
    result = Result(name)
    schema, tests = group["schema"], group.get("tests", [])
    begin = time.process_time()
    try:
        constraint = compiler.json_schema(schema, whitespace=options.whitespace, key_order=options.key_order)
    except PhloemError as error:
        result.error, result.message = type(error).__name__, str(error)
        result.pointer = error.pointer if isinstance(error, ConstraintError) else ""
        result.seconds = time.process_time() - begin
        return result
    result.seconds = time.process_time() - begin
    for index, test in enumerate(tests):
        text = json.dumps(test["data"], separators=SEPARATORS[options.whitespace], ensure_ascii=False)
        taken = constraint.accepts(text.encode("utf-8", "surrogatepass"))
        if test["valid"]:
            result.num_valid += 1
            if not taken:
                result.refused.append(index)
        else:
            result.num_invalid += 1
            if taken:
                result.accepted.append(index)
    if options.walks:
        judge = judge_of(schema)
        generator = random.Random(f"{options.seed}/{name}")
        for _ in range(options.walks):
            text = walk(constraint, generator)
            result.num_walks += 1
            problem = verdict(judge, text)
            if problem:
                result.bad_walks.append(f"{problem}: {text[:300].decode(errors='replace')}")
    return result


def walk(constraint: Constraint, generator: random.Random, num_free: int = 200) -> bytes:
    """A random text: live bytes at random, then the shortest way to an end."""
    cursor, automaton, text = constraint.cursor(), constraint.automaton, bytearray()
    num_free = generator.randrange(4, num_free)
    while True:
        if cursor.is_accepting and (len(text) >= num_free or generator.random() < 0.3):
            return bytes(text)
        live = np.flatnonzero(np.unpackbits(cursor.row().view(np.uint8), bitorder="little")[:256]).tolist()
        if not live:
            return bytes(text)
        if len(text) >= num_free:
            byte = min(live, key=lambda b: automaton.min_bytes(automaton.advance_bytes(cursor.state, bytes((b,)))))
        else:
            plain = [b for b in live if 32 <= b < 127]
            byte = generator.choice(plain if plain and generator.random() < 0.9 else live)
        text.append(byte)
        assert cursor.advance(byte), "a live byte is refused"


def judge_of(schema: Any) -> Any:
    """The validator of the schema's own draft."""
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema)


def verdict(judge: Any, text: bytes) -> str:
    """Why the text is wrong; empty if it is right."""
    try:
        error = next(iter(judge.iter_errors(json.loads(text))), None)
    except ValueError as broken:
        return f"no JSON ({broken})"
    except Exception as broken:  # the judge itself cannot read some schemas
        return f"judge: {type(broken).__name__}" if "judge" in sys.argv else ""
    return "" if error is None else f"invalid ({error.message[:100]} at {error.json_path})"


def show(result: Result) -> None:
    """Prints a case that is not right."""
    if result.error:
        print(f"{result.name}: {result.error} {result.message[:200]}")
    if result.refused:
        print(f"{result.name}: refuses valid {result.refused}")
    if result.accepted:
        print(f"{result.name}: accepts invalid {result.accepted}")
    for text in result.bad_walks:
        print(f"{result.name}: walk {text}")


def table(results: list[Result]) -> str:
    """The figures, and the refusals by reason."""
    compiled = [r for r in results if not r.error]
    right = [r for r in compiled if not r.refused and not r.accepted]
    num_valid, num_invalid = sum(r.num_valid for r in compiled), sum(r.num_invalid for r in compiled)
    refused, accepted = sum(len(r.refused) for r in compiled), sum(len(r.accepted) for r in compiled)
    walks, bad = sum(r.num_walks for r in compiled), sum(len(r.bad_walks) for r in compiled)
    times = sorted(r.seconds * 1000 for r in compiled) or [0.0]
    lines = [
        "| figure | value |",
        "|:--|--:|",
        f"| cases | {len(results)} |",
        f"| compiled | {len(compiled)} ({100 * len(compiled) / max(len(results), 1):.1f} %) |",
        f"| right in every instance | {len(right)} ({100 * len(right) / max(len(results), 1):.1f} %) |",
        f"| valid instances refused | {refused} of {num_valid} ({100 * refused / max(num_valid, 1):.2f} %) |",
        f"| invalid instances accepted | {accepted} of {num_invalid} |",
        f"| random walks that are not valid | {bad} of {walks} |",
        f"| schema to automaton, ms of CPU, p50 / p90 / p99 / max | {_at(times, 50)} / {_at(times, 90)} / "
        f"{_at(times, 99)} / {times[-1]:.1f} |",
        "",
        "| refused because | cases | for example |",
        "|:--|--:|:--|",
    ]
    reasons: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.error:
            reasons[f"{result.error}: {_reason(result)}"].append(result)
    for reason, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {reason} | {len(found)} | {found[0].name} {found[0].pointer[-60:]} |")
    kinds = Counter(r.error for r in results if r.error)
    lines.append(f"\n{dict(kinds)}")
    return "\n".join(lines)


def _reason(result: Result) -> str:
    text = result.message
    if result.pointer and text.startswith(result.pointer):
        text = text[len(result.pointer) :].lstrip(": ")
    keyword = result.pointer.rsplit("/", 1)[-1] if result.pointer else ""
    return f"{keyword}: {text[:80]}".replace("|", "\\|").replace("\n", " ")


def _at(values: list[float], percent: int) -> str:
    return f"{values[min(len(values) - 1, percent * len(values) // 100)]:.2f}"


if __name__ == "__main__":
    main()
