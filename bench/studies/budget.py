"""The budget guarantee: every case, at the least number of tokens and above, at random; and how tight that number is.

    python bench/studies/budget.py CASES [--vocabulary nano | FILE]... [--limit N] [--part I/N] [--seed S] [--exact N]
                           [--key-order schema | any] [--whitespace compact | spaced | flexible] [--progress N]

CASES is a folder of files `{"schema": …, "tests": [{"valid": bool, "data": …}]}`. For every case that compiles, texts
are sampled at random (a fixed random logit for each token, temperatures 1 to 3) with max_tokens = least, least + 1,
+ 2, + 5, 2 x, and 4 x + 50. Each must end in time and validate under `jsonschema`; one token less than least must be
refused. VOCABULARY is read by `real_vocabularies`; several may be given, default: the bundled model's.

Printed: texts and failures, and how often a bound was above the tokens left, although they sufficed; the least number
of tokens against bytes, and against the shortest valid instance that the case brings (in the model's own tokens,
compact); the time to find it, and to make a row near the end, with the cases in which these took longest. With
--exact N also against the true minimum, found by trying all tokens, where that looks at no more than N states. What is
wrong is printed when it is found; with --progress N also, every N cases, how far it has come. Exits with 1 if a text
failed or a bound was overstated, since `min_tokens_to_accept` says that it never is.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from real_vocabularies import read_vocabulary
from schema_cases import cases, judge_of, verdict

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Constraint, Vocabulary

NUM_SLOWEST = 12
MERGED = ("failures", "overstated", "least", "least_bytes", "over_exact", "over_known", "find_us", "row_us", "slowest")


@dataclass
class Figures:
    """What was found over all cases of one vocabulary."""

    compiled: int = 0
    texts: int = 0
    overstated: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    least_bytes: list[int] = field(default_factory=list)
    over_exact: list[int] = field(default_factory=list)
    over_known: list[tuple[int, int]] = field(default_factory=list)
    find_us: list[float] = field(default_factory=list)
    row_us: list[float] = field(default_factory=list)
    slowest: list[tuple[float, float, str]] = field(default_factory=list)


class Dice:
    """Samples allowed tokens by fixed random logits."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.logits = generator.normal(0.0, 2.0, vocabulary.size)
        self.sums = {t: np.cumsum(np.exp(self.logits / t)) for t in (1.0, 1.5, 2.0, 3.0)}

    def draw(self, row: np.ndarray, temperature: float, rng: random.Random) -> int:
        """An allowed token; -1 if there is none."""
        sums = self.sums[temperature]
        for _ in range(16):
            token_id = int(np.searchsorted(sums, rng.random() * sums[-1]))
            if row[token_id >> 5] >> (token_id & 31) & 1:
                return token_id
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        if not len(allowed):
            return -1
        weights = np.cumsum(np.exp(self.logits[allowed] / temperature))
        return int(allowed[int(np.searchsorted(weights, rng.random() * weights[-1]))])


def write(
    constraint: Constraint, max_tokens: int, dice: Dice, rng: random.Random, figures: Figures
) -> tuple[bytes, str]:
    """A random text, and what went wrong with the budget."""
    cursor, text = constraint.cursor(), b""
    temperature = rng.choice(list(dice.sums))
    for used in range(max_tokens):
        begin = time.process_time()
        row = cursor.row_within(max_tokens - used)
        figures.row_us.append(1e6 * (time.process_time() - begin))
        token_id = dice.draw(row, temperature, rng)
        if token_id < 0:
            return text, f"no token is allowed after {used} of {max_tokens}"
        if not cursor.advance(token_id):
            return text, "a token of the row is refused"
        if cursor.is_finished:
            break
        text += constraint.vocabulary.tokens[token_id]
        if cursor.min_tokens_to_accept() > max_tokens - used - 1:
            figures.overstated.append(f"after {used + 1} of {max_tokens}: {text[-100:].decode(errors='replace')}")
    return text, "" if cursor.is_accepting else f"not complete after {max_tokens}"


def exact(constraint: Constraint, max_states: int) -> int:
    """The true least number of tokens by trying all of them; -1 if that looks at too many states."""
    seen, level = {constraint.automaton.start}, [constraint.automaton.start]
    for depth in range(10_000):
        if any(constraint.automaton.is_accepting(state) for state in level):
            return depth
        if len(seen) > max_states:
            return -1
        following = set()
        for state in level:
            following.update(
                np.unique(constraint.automaton.targets(state, constraint.caches.masks.row(state).bits)).tolist()
            )
            if len(seen) + len(following) > 50 * max_states:
                return -1
        level = list(following - seen - {0})
        seen.update(level)
    return -1


def run(
    name: str, group: dict[str, Any], compiler: Compiler, dice: Dice, options: argparse.Namespace
) -> Figures | None:
    """One case."""
    figures = Figures()
    try:
        constraint = compiler.json_schema(group["schema"], key_order=options.key_order, whitespace=options.whitespace)
    except PhloemError:
        return None
    figures.compiled = 1
    begin = time.process_time()
    least = constraint.min_tokens()
    figures.find_us.append(1e6 * (time.process_time() - begin))
    figures.least.append(least)
    figures.least_bytes.append(constraint.automaton.min_bytes(constraint.automaton.start))
    if constraint.is_within(least - 1) or not constraint.is_within(least):
        figures.failures.append(f"{name}: the minimum {least} is not where requests begin to be taken")
    if options.exact:
        true = exact(constraint, options.exact)
        if true >= 0:
            figures.over_exact.append(least - true)
    encode = constraint.vocabulary.encode
    lens = []
    for test in group.get("tests", []):
        text = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False)
        if test["valid"] and encode and constraint.accepts(text.encode("utf-8", "surrogatepass")):
            lens.append(len(encode(text)))
    if lens:
        figures.over_known.append((least, min(lens)))
    judge, rng = judge_of(group["schema"]), random.Random(f"{options.seed}/{name}")
    for max_tokens in (least, least + 1, least + 2, least + 5, 2 * least, min(4 * least + 50, least + 400)):
        try:
            text, problem = write(constraint, max_tokens, dice, rng, figures)
        except PhloemError as error:  # a text once begun must not end so
            text, problem = b"", f"{type(error).__name__}: {error}"
        figures.texts += 1
        problem = problem or verdict(judge, text)
        if problem:
            figures.failures.append(
                f"{name}: max_tokens {max_tokens}: {problem}: {text[-300:].decode(errors='replace')}"
            )
    figures.slowest.append((max(figures.row_us, default=0.0), figures.find_us[0], name))
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", action="append")
    parser.add_argument("--limit", type=int, default=0, help="at most N cases, evenly spread; 0: all")
    parser.add_argument("--part", default="1/1", help="I/N: of these only every Nth, from the Ith on")
    parser.add_argument("--only", default="", help="only files whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exact", type=int, default=0)
    parser.add_argument("--progress", type=int, default=0)
    parser.add_argument("--key-order", choices=("schema", "any"), default="schema")
    parser.add_argument("--whitespace", choices=("compact", "spaced", "flexible"), default="compact")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    groups = cases(options.folder, options.only)
    groups = groups[:: max(1, len(groups) // options.limit)] if options.limit else groups
    first, every = map(int, options.part.split("/"))
    groups = groups[first - 1 :: every]
    failed = False
    for vocabulary_name in options.vocabulary or ["nano"]:
        vocabulary = read_vocabulary(vocabulary_name)
        compiler, dice, total = Compiler(vocabulary), Dice(vocabulary, options.seed), Figures()
        compiler.warm_up()
        for index, (name, group) in enumerate(groups, 1):
            gc.disable()  # its pauses grow with all the cases before
            found = run(name, group, compiler, dice, options)
            gc.enable()
            if found is not None:
                total.compiled += 1
                total.texts += found.texts
                found.overstated = [f"{name}: bound overstated {place}" for place in found.overstated]
                for attribute in MERGED:
                    getattr(total, attribute).extend(getattr(found, attribute))
                for problem in found.failures + found.overstated:
                    print(f"  {problem}", flush=True)
            if options.progress and index % options.progress == 0:
                print(
                    f"  {index} of {len(groups)} cases, {total.texts} texts, {len(total.failures)} failures, "
                    f"{len(total.overstated)} bounds overstated, {time.process_time():.0f} s",
                    flush=True,
                )
        show(Path(vocabulary_name).name, vocabulary, len(groups), total)
        failed |= bool(total.failures or total.overstated)
    return failed


def show(name: str, vocabulary: Vocabulary, num_cases: int, total: Figures) -> None:
    """Prints the figures of one vocabulary."""
    ratio = sum(total.least) / max(sum(total.least_bytes), 1)
    print(f"{name}, {vocabulary.size} tokens: {total.compiled} of {num_cases} cases compile")
    failures = len(total.failures)
    print(f"  texts within a budget    {total.texts}, failures {failures}, bounds overstated {len(total.overstated)}")
    median = statistics.median(total.least)
    print(f"  least tokens             median {median}, max {max(total.least)}; {ratio:.2f} per byte")
    pairs = total.over_known
    if pairs:
        above = [(least, known) for least, known in pairs if least > known]
        median = statistics.median(known for _, known in pairs)
        print(f"  shortest known instance  median {median} tokens; below the minimum in {len(above)} of {len(pairs)}")
    if total.over_exact:
        over = total.over_exact
        print(
            f"  true minimum (found {len(over)}) met in {sum(o == 0 for o in over)}; "
            f"over by {sorted(over)[-1]} at most, {sum(over) / len(over):.3f} on average"
        )
    for label, times in (("to find it, us", total.find_us), ("a row within, us", total.row_us)):
        times.sort()
        at = " / ".join(f"{times[min(len(times) - 1, len(times) * p // 1000)]:.0f}" for p in (500, 990, 999))
        print(f"  {label:24} p50 / p99 / p99.9 / max {at} / {times[-1]:.0f}")
    for row_us, find_us, name in sorted(total.slowest, key=lambda case: -max(case[:2]))[:NUM_SLOWEST]:
        print(f"  {name:40} worst row {row_us:.0f}, minimum {find_us:.0f} us")


if __name__ == "__main__":
    sys.exit(main())
