"""Compiled loops and kernels, compiled before they are waited for.

The CPU loops and the automata are compiled by numba when they are first called, a GPU's kernels by Triton. Both are
kept on disk, so a new installation pays once (about a minute), a later process some tenths of a second for loading. A
server warms up before it says it is ready, and captures a GPU's graphs (`rehearsal`); after an installation
`python -m phloem.runtime.warm_up` compiles the loops, with one process per part.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, suppress
from dataclasses import replace

from ..code_cache import tell_of_compiling
from ..errors import RequestError
from .constraint_spec import ConstraintSpec, choice, json_object, json_schema, regex
from .engine import Engine
from .request import SamplingParams

PARTS = ("sampling", "constraints")
NAMESPACE = "phloem warm-up"  # what is kept of it in files below the pool is found by no other request
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 9},
        "kind": {"enum": ["a", "b"]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}\\d+$"},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "share": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "rest": {},
    },
    "required": ["name"],
    "additionalProperties": False,
}
NUMBERS = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 2, "maxItems": 3}
NAMED = {
    "type": "object",
    "properties": {"a": {"enum": [1, "b", {"c": None}]}},
    "patternProperties": {"^x": {"type": "number", "exclusiveMinimum": 0}},
    "additionalProperties": {"type": "boolean"},
    "minProperties": 1,
    "maxProperties": 2,
}
OPEN = {"type": "object", "properties": {"a": {"type": "boolean"}}, "minProperties": 1, "maxProperties": 2}
SCHEMAS = (RECORD, NUMBERS, NAMED, OPEN)


def warm_up(engine: Engine, parts: tuple[str, ...] = PARTS) -> None:
    """Rehearses a GPU's steps and runs a few small requests of every sort. Afterwards the engine's cache is empty, and
    its statistics and the record of its traffic are as if there had been none."""
    if "sampling" in parts:
        engine.rehearse()
    filtered = SamplingParams(temperature=1.0, top_k=8, top_p=0.9, min_p=0.01, seed=0)
    laws = [replace(filtered, temperature=0.0), filtered]
    runs: list[tuple[ConstraintSpec | None, SamplingParams]] = []
    if "sampling" in parts:
        reported = replace(filtered, logprobs=2)
        edited = replace(filtered, presence_penalty=0.5, logit_bias={1: 1.0})
        runs += [(None, law) for law in (*laws, reported, edited, replace(edited, logprobs=0))]
    if "constraints" in parts and engine.tokenizer.has_text:
        specs = (regex("[a-z]{2,4}|\\d+"), choice(["yes", "no"]), json_object(), *map(json_schema, SCHEMAS))
        runs += [(spec, law) for spec in specs for law in laws]
    for spec, law in runs:
        needed = engine.intake.compile(spec).min_tokens() if spec is not None else 1
        # a context or a pool that is too small for them is too small for requests like them as well
        with suppress(RequestError):
            prompts = [[1, 2, 3], list(range(1, 40))]
            engine.generate(prompts, replace(law, max_tokens=needed + 16), spec, namespace=NAMESPACE)
    engine.flush_cache()
    engine.reset_statistics()


def main() -> None:
    """Warms one part up if it is named on the command line, else all of them, each in a process of its own."""
    if len(sys.argv) > 1:
        with redirect_stderr(io.StringIO()):  # whoever started this has told
            tell_of_compiling()
        with Engine("nano", device="cpu", num_blocks=64) as engine:
            warm_up(engine, tuple(sys.argv[1:]))
        return
    if not sys.stderr.isatty():  # a terminal has been told
        print("Compiling loops for this processor, once; this takes a minute or two.", flush=True)
    command = [sys.executable, "-m", __spec__.name]
    workers = [subprocess.Popen([*command, part]) for part in PARTS]
    sys.exit(max(worker.wait() for worker in workers))


if __name__ == "__main__":
    main()
