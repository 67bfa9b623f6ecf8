"""What jump-forward saves, and that it changes nothing: every schema of a folder, greedily, with and without.

    python bench/jump.py CASES [--limit 400] [--max-tokens 200] [--temperature 0]

CASES is a folder of files `{"schema": …}` (the layout of MaskBench and JSONSchemaBench). The bundled model answers one
prompt under each schema that compiles; then another prompt under the same schemas, as on a server whose clients use a
schema again and again (what was written before makes likely text of the rest). Printed for each round: tokens drafted
and accepted, steps saved, tokens per second of CPU, and whether output is identical token by token; and that every
draft is the canonical tokenisation of its text. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import phloem as ph

PROMPTS = (
    "Tarvin Ledmo, 42, lives in Quolsat.\n\nExtract the person as JSON.",
    "Invoice 1093: 12 lamps at 30 gold each, due on 3 May, to Mira Olsen.\n\nExtract the invoice as JSON.",
)
HEADING = (
    f"{'jump':10}{'tokens':>9}{'drafted':>9}{'accepted':>9}{'':>7}{'request steps':>15}{'saved':>8}{'tok/s':>9}"
    f"{'forwards':>10}"
)


def read_schemas(folder: Path, limit: int) -> dict[str, object]:
    """Schemas by file name; with a limit, evenly spread over the folder."""
    files = sorted(folder.glob("*.json"))
    step = max(1, len(files) // limit)
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))["schema"] for path in files[::step][:limit]}


def answer(
    engine: ph.Engine, specs: dict[str, ph.ConstraintSpec], params: ph.SamplingParams, text: str
) -> tuple[dict[str, tuple[int, ...]], dict[str, ph.Usage], float]:
    """Runs all of them in one batch; token ids and usage by name, and seconds of CPU."""
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": text}])
    begin = time.process_time()
    tokens: dict[str, tuple[int, ...]] = {}
    usage: dict[str, ph.Usage] = {}
    for name, spec in specs.items():
        engine.add(prompt, params, spec, request_id=name)
        tokens[name] = ()
    while engine.has_work:
        for delta in engine.step():
            if delta.error is not None:
                raise delta.error
            tokens[delta.request_id] += delta.token_ids
            usage[delta.request_id] = delta.usage
    return tokens, usage, time.process_time() - begin


def check_drafts(
    engine: ph.Engine, specs: dict[str, ph.ConstraintSpec], tokens: dict[str, tuple[int, ...]]
) -> tuple[int, int]:
    """Walks every output again; how many drafts stand along the way, and how many are not canonical."""
    tokenizer = engine.tokenizer
    checked = odd = 0
    for name, spec in specs.items():
        cursor = engine.intake.compile(spec).cursor()
        for token_id in tokens[name]:
            draft = cursor.draft()
            checked += bool(draft)
            odd += tokenizer.encode(tokenizer.decode(draft)) != draft
            cursor.advance(token_id)
    return checked, odd


def row(run: tuple[dict[str, tuple[int, ...]], dict[str, ph.Usage], float], base: int) -> str:
    """One line of the table: what a run drafted and saved, against `base` steps without drafts."""
    usage, seconds = list(run[1].values()), run[2]
    tokens = sum(u.completion_tokens for u in usage)
    drafted, accepted = sum(u.drafted_tokens for u in usage), sum(u.jumped_tokens for u in usage)
    steps = sum(u.num_steps for u in usage)
    share = f"{accepted / drafted:.1%}" if drafted else ""
    return f"{tokens:>9}{drafted:>9}{accepted:>9}{share:>7}{steps:>15}{1 - steps / base:>8.1%}{tokens / seconds:>9.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    torch.set_num_threads(1)

    engines = {jump: ph.Engine("nano", device="cpu", jump=jump) for jump in ("off", "verified", "canonical")}
    params = ph.SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, seed=1)
    specs: dict[str, ph.ConstraintSpec] = {}
    refused = 0
    for name, schema in read_schemas(options.cases, options.limit).items():
        spec = ph.json_schema(schema)  # type: ignore[arg-type]
        try:
            engines["off"].prepare(PROMPTS[0], params, spec)
        except ph.RequestError:
            refused += 1
        else:
            specs[name] = spec

    print(f"{len(specs)} schemas ({refused} refused), temperature {options.temperature:g}")
    num_wrong = 0
    for number, text in enumerate(PROMPTS, 1):
        print(f"\nround {number}\n{HEADING}")
        runs = {}
        for jump, engine in engines.items():
            before = engine.statistics().num_forwards
            runs[jump] = answer(engine, specs, params, text)
            steps = sum(usage.num_steps for usage in runs["off"][1].values())
            print(f"{jump:10}{row(runs[jump], steps)}{engine.statistics().num_forwards - before:>10}")
        different = [name for name in specs if runs["off"][0][name] != runs["verified"][0][name]]
        shown = "".join(f"\n  {name}" for name in different[:10])
        print(f"verified differs from off in {len(different)} of {len(specs)}{shown}")
        checked, odd = check_drafts(engines["verified"], specs, runs["verified"][0])
        print(f"drafts that are the canonical tokenisation of their text: {checked - odd} of {checked}")
        num_wrong += len(different) + odd
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
