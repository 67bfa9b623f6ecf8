"""What is done once in a process, done before a request waits for it.

A GPU's kernels are compiled by Triton when they are first called, and kept on disk; its graphs are captured in each
process (`warmup_batches`). On every device the tables of characters, the automata of formats and the first mask rows
are made once. A server warms up before it says that it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ...errors import RequestError
from ..constrain.spec import ConstraintSpec, choice, json_object, json_schema, regex
from ..request import SamplingParams
from .engine import Engine

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
WORDS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2, "maxItems": 3}
NAMED = {
    "type": "object",
    "properties": {"a": {"enum": [1, "b", {"c": None}]}},
    "patternProperties": {"^x": {"type": "number", "exclusiveMinimum": 0}},
    "additionalProperties": {"type": "boolean"},
    "minProperties": 1,
    "maxProperties": 2,
}
OPEN = {"type": "object", "properties": {"a": {"type": "boolean"}}, "minProperties": 1, "maxProperties": 2}
SCHEMAS = (RECORD, WORDS, NAMED, OPEN)


def warm_up(
    engine: Engine, parts: tuple[str, ...] = PARTS, report: Callable[[int, int], object] = lambda done, total: None
) -> None:
    """Runs a GPU's warm-up batches and a few small requests of every sort. Afterwards the engine's cache is empty, and
    its statistics and the record of its traffic are as if there had been none.

    report: called with how many requests are done, and of how many; a GPU's batches come before the first.
    """
    if not engine.core.generates:
        return
    if "sampling" in parts:
        engine.step_thread.call(engine.core.run_warmup_batches).result()
    filtered = SamplingParams(temperature=1.0, top_k=8, top_p=0.9, min_p=0.01, seed=0)
    plain = [replace(filtered, temperature=0.0), filtered]
    runs: list[tuple[ConstraintSpec | None, SamplingParams]] = []
    if "sampling" in parts:
        reported = replace(filtered, logprobs=2)
        edited = replace(filtered, presence_penalty=0.5, logit_bias={1: 1.0})
        runs += [(None, params) for params in (*plain, reported, edited, replace(edited, logprobs=0))]
    if "constraints" in parts and engine.tokenizer.has_text:
        specs = (regex("[a-z]{2,4}|\\d+"), choice(["yes", "no"]), json_object(), *map(json_schema, SCHEMAS))
        runs += [(spec, params) for spec in specs for params in plain]
    for index, (spec, params) in enumerate(runs):
        report(index, len(runs))
        needed = engine.request_factory.compile(spec).min_tokens() if spec is not None else 1
        # a context or a pool that is too small for them is too small for requests like them as well
        with suppress(RequestError):
            prompts = [[1, 2, 3], list(range(1, 40))]
            engine.generate(prompts, replace(params, max_tokens=needed + 16), spec, namespace=NAMESPACE)
    engine.flush_cache()
    engine.step_thread.call(engine.core.monitor.reset).result()
