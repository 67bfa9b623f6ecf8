"""What jump-forward saves, and that it changes nothing: every schema of a folder, greedily, with and without.

    python bench/studies/jump.py CASES [--limit 400] [--max-tokens 200] [--temperature 0] [--running 256] [--repeats 2]

CASES is a folder of files `{"schema": …}` (the layout of MaskBench and JSONSchemaBench). The bundled model answers one
prompt under each schema that compiles, `--running` at a time; then another prompt under the same schemas, as on a
server whose clients use a schema again and again (what was written before makes likely text of the rest). The engines
of all modes take steps in turn, so that they meet the same neighbours, and everything is repeated with new engines that
begin in another order. Printed for each round: tokens drafted and accepted, steps saved, tokens per second of CPU and
against "off" (medians over the repeats); whether output is identical token by token; and that every draft is the
canonical tokenisation of its text. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

import phloem as ph
from phloem.fsm.foresight import forced_tokens
from phloem.runtime.config import EngineConfig, JumpMode
from phloem.runtime.execute.loading import load

JUMPS: tuple[JumpMode, ...] = ("off", "verified", "canonical")

PROMPTS = (
    "Tarvin Ledmo, 42, lives in Quolsat.\n\nExtract the person as JSON.",
    "Invoice 1093: 12 lamps at 30 gold each, due on 3 May, to Mira Olsen.\n\nExtract the invoice as JSON.",
)
HEADING = (
    f"{'jump':10}{'tokens':>9}{'drafted':>9}{'accepted':>9}{'':>7}{'request steps':>15}{'saved':>8}{'tok/s':>9}"
    f"{'x off':>8}{'forwards':>10}"
)


def read_schemas(folder: Path, limit: int) -> dict[str, object]:
    """Schemas by file name; with a limit, evenly spread over the folder."""
    files = sorted(folder.glob("*.json"))
    step = max(1, len(files) // limit)
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["schema"] for path in files[::step][:limit]}


@dataclass
class Run:
    """All schemas under way in one engine.

    Attributes:
        tokens, usage, failed: by schema.
        seconds: CPU time of its steps.
        num_forwards: of them.
    """

    engine: ph.Engine
    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)
    usage: dict[str, ph.Usage] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    seconds: float = 0.0
    num_forwards: int = 0

    def step(self) -> bool:
        """One step; whether there was one to be done."""
        if not self.engine.core.has_work:
            return False
        begin = time.process_time()
        deltas = self.engine.core.step()
        self.seconds += time.process_time() - begin
        self.num_forwards += 1
        for delta in deltas:
            if delta.error is not None:
                self.failed[delta.request_id] = delta.error
            self.tokens[delta.request_id] += delta.token_ids
            self.usage[delta.request_id] = delta.usage
        return True


def answer(
    engines: dict[str, ph.Engine], specs: dict[str, ph.ConstraintSpec], params: ph.SamplingParams, text: str
) -> dict[str, Run]:
    """Runs all of them in every engine, the engines step by step in turn."""
    runs = {jump: Run(engine, dict.fromkeys(specs, ())) for jump, engine in engines.items()}
    for engine in engines.values():
        prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": text}])
        for name, spec in specs.items():
            engine.core.add(prompt, params, spec, request_id=name)
    while any([run.step() for run in runs.values()]):
        pass
    return runs


def check_drafts(
    engine: ph.Engine, specs: dict[str, ph.ConstraintSpec], tokens: dict[str, tuple[int, ...]]
) -> tuple[int, int]:
    """Walks every output again; how many drafts stand along the way, and how many are not canonical."""
    tokenizer = engine.tokenizer
    checked = odd = 0
    for name, spec in specs.items():
        cursor = engine.request_factory.compile(spec).cursor()
        for token_id in tokens[name]:
            draft = forced_tokens(cursor)
            checked += bool(draft)
            odd += tokenizer.encode(tokenizer.decode(draft)) != draft
            cursor.advance(token_id)
    return checked, odd


def row(repeats: list[dict[str, Run]], jump: str) -> str:
    """One line of the table: what the runs of one round drafted and saved."""
    run, base = repeats[0][jump], repeats[0]["off"]
    usage = list(run.usage.values())
    tokens = sum(u.completion_tokens for u in usage)
    drafted, accepted = sum(u.drafted_tokens for u in usage), sum(u.jumped_tokens for u in usage)
    steps, base_steps = (sum(u.num_steps for u in one.usage.values()) for one in (run, base))
    share = f"{accepted / drafted:.1%}" if drafted else ""
    speeds = [sum(map(len, runs[jump].tokens.values())) / runs[jump].seconds for runs in repeats]
    bases = [sum(map(len, runs["off"].tokens.values())) / runs["off"].seconds for runs in repeats]
    ratio = statistics.median(speed / base for speed, base in zip(speeds, bases, strict=True))
    return (
        f"{jump:10}{tokens:>9}{drafted:>9}{accepted:>9}{share:>7}{steps:>15}{1 - steps / base_steps:>8.1%}"
        f"{statistics.median(speeds):>9.0f}{ratio:>8.3f}{run.num_forwards:>10}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)

    config = EngineConfig(model="nano", device="cpu", jump="off", max_running_requests=options.running)
    loaded = load(config)
    params = ph.SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, seed=1)
    specs: dict[str, ph.ConstraintSpec] = {}
    refused = 0
    trial = ph.Engine.from_loaded(config, loaded)
    for name, schema in read_schemas(options.cases, options.limit).items():
        spec = ph.json_schema(schema)  # type: ignore[arg-type]
        try:
            trial.core.prepare(PROMPTS[0], params, spec)
        except ph.RequestError:
            refused += 1
        else:
            specs[name] = spec

    def make_engines(step: int) -> dict[str, ph.Engine]:
        return {jump: ph.Engine.from_loaded(replace(config, jump=jump), loaded) for jump in JUMPS[::step]}

    answer(make_engines(1), dict(list(specs.items())[:8]), params, PROMPTS[0])  # loads the compiled loops
    rounds: list[list[dict[str, Run]]] = [[] for _ in PROMPTS]
    for repeat in range(options.repeats):
        engines = make_engines(1 if repeat % 2 else -1)
        for number, text in enumerate(PROMPTS):
            rounds[number].append(answer(engines, specs, params, text))

    print(
        f"{len(specs)} schemas ({refused} refused), {options.running} at a time, temperature {options.temperature:g}, "
        f"{options.repeats} repeats"
    )
    num_wrong = 0
    for number, repeats in enumerate(rounds, 1):
        print(f"\nround {number}\n{HEADING}")
        for jump in JUMPS:
            print(row(repeats, jump))
        different = [
            name for runs in repeats for name in specs if runs["off"].tokens[name] != runs["verified"].tokens[name]
        ]
        shown = "".join(f"\n  {name}" for name in different[:10])
        for name, error in repeats[0]["off"].failed.items():
            print(f"{name} fails: {error}")
        print(f"verified differs from off in {len(different)} of {len(specs) * len(repeats)}{shown}")
        verified = repeats[-1]["verified"]
        checked, odd = check_drafts(verified.engine, specs, verified.tokens)
        print(f"drafts that are the canonical tokenisation of their text: {checked - odd} of {checked}")
        num_wrong += len(different) + odd
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
