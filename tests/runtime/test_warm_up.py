"""What has been warmed up is compiled: no later request of a common sort waits for a loop."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
from phloem.code_cache import seconds_on_loops
from phloem.runtime.constraint_spec import choice, grammar, json_object, json_schema, regex
from phloem.runtime.engine import Engine
from phloem.runtime.request import SamplingParams
from phloem.runtime.warm_up import warm_up

SCHEMAS = [
    {"type": "array", "items": {"type": "integer", "multipleOf": 3}, "uniqueItems": True, "maxItems": 2},
    {"type": "string", "format": "date"},
    {"enum": ["x", 1, {"y": [None]}]},
    {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "minProperties": 1, "maxProperties": 1},
    {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 2, "maxLength": 40}]},
]
SPECS = {
    "choice": choice(["blue", "bluish"]),
    "regex": regex("(foo|bar){1,3}"),
    "grammar": grammar('start: "a" | "(" start ")"'),
    "object": json_object(),
    **{f"schema {index}": json_schema(schema) for index, schema in enumerate(SCHEMAS)},
}
PARAMS = {
    "greedy": SamplingParams(max_tokens=60, temperature=0.0),
    "sampled": SamplingParams(max_tokens=60, top_p=0.9, stop=["xyz"], seed=1),
    "penalties": SamplingParams(max_tokens=60, repetition_penalty=1.2, frequency_penalty=0.1, seed=1),
    "biases": SamplingParams(max_tokens=60, logit_bias={7: 1.0}, seed=1),
    "logprobs": SamplingParams(max_tokens=60, logprobs=3, seed=1),
    "outputs": SamplingParams(max_tokens=60, n=2, seed=1),
}

with Engine("nano", device="cpu", num_blocks=256) as engine:
    warm_up(engine)
    requests = [(name, params, None) for name, params in PARAMS.items()]
    requests += [(name, PARAMS["sampled"], spec) for name, spec in SPECS.items()]
    for name, params, spec in requests:
        before = seconds_on_loops()
        engine.generate("Once upon a time", params, spec)
        if seconds_on_loops() > before:
            print(name)
"""


def test_no_common_request_compiles_anything() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == []
