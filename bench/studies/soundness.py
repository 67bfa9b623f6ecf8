"""Random sampling through the mask, over a real vocabulary: is whatever comes out valid?

    python bench/studies/soundness.py CASES [--tokenizer tekken.json | bytes] [--walks N] [--part I/N] [--seed S]
           [--whitespace STYLE] [--key-order schema | any] [--only TEXT] [--peers]

CASES is a folder of files `{"schema": …}`, or lists of such groups (the official test suite). Every schema that
compiles is sampled N times by a pretend model: random logits, sharpened or flattened by a temperature, from which
the mask takes what is not allowed. Every answer must

- be complete within its budget of tokens (EOS taken; the budget begins at the minimum that the constraint states),
- be JSON, and valid under `jsonschema` with the schema's own draft; formats count where the judge checks them,
- have no key twice in one object.

Temperatures go round from 0 (always the best token: loops, runs into the budget) to infinity (any allowed token:
long tokens, other scripts, broken characters). Every second model likes tokens of JSON punctuation, so that walks
get around in the schema instead of staying in its first string.

Printed: every failure with schema and text when it is found, then how many answers at which temperature and of which
length. Exits with 1 if there is a failure.
`--peers` also asks llguidance and xgrammar whether they take each answer, where they compile the schema; what they
refuse is listed, not counted as failure.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from schema_cases import cases

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Constraint, Vocabulary

TEMPERATURES = (0.0, 0.4, 1.0, 3.0, float("inf"))
NARROW = 256  # words of a row with a bit set, up to which only these are looked at
PUNCTUATION = b'"{}[],:'


@dataclass
class Findings:
    """What was counted."""

    outcomes: Counter[str] = field(default_factory=Counter)
    temperatures: Counter[float] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    num_bytes: int = 0
    num_unjudged: int = 0
    failures: list[str] = field(default_factory=list)
    peers: Counter[str] = field(default_factory=Counter)
    refused_by_others: dict[str, str] = field(default_factory=dict)


class PretendModel:
    """Random logits over a vocabulary: a window of one long random array per answer, another for the noise."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        generator = np.random.default_rng(seed)
        size = vocabulary.size
        self._size = size
        self._logits = generator.normal(0.0, 3.0, 2 * size).astype(np.float32)
        self._noise = generator.gumbel(0.0, 1.0, 4 * size).astype(np.float32)
        likes = [token[:1] in PUNCTUATION and token != b"" for token in vocabulary.tokens]
        self._likes = np.where(likes, np.float32(4.0), np.float32(0.0))
        self._likes[list(vocabulary.eos_ids)] = 4.0

    def answer(
        self, constraint: Constraint, random_: random.Random, temperature: float, tidy: bool, max_tokens: int
    ) -> tuple[bytes, str]:
        """A text, and why it is not complete ("" if it is)."""
        cursor = constraint.cursor()
        tokens = constraint.vocabulary.tokens
        start = random_.randrange(self._size)
        logits = self._logits[start : start + self._size]
        if tidy:
            logits = logits + self._likes
        text = bytearray()
        for used in range(max_tokens + 1):
            ids = _allowed(cursor.row_within(max_tokens - used))
            if not len(ids):
                return bytes(text), "stuck"
            if temperature == 0.0:
                scores = logits[ids]
            else:
                start = random_.randrange(3 * self._size)
                scores = self._noise[start : start + self._size][ids]
                if temperature != float("inf"):
                    scores = scores + logits[ids] / np.float32(temperature)
            token_id = int(ids[int(scores.argmax())])
            if not cursor.advance(token_id):
                return bytes(text), f"token {token_id} is in the mask and not allowed"
            if cursor.is_finished:
                return bytes(text), ""
            text += tokens[token_id]
        return bytes(text), "past the budget"


def _allowed(row: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The ids of a row; quickly if they are few."""
    words = np.flatnonzero(row)
    if len(words) > NARROW:
        return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    bits = np.unpackbits(row[words].view(np.uint8), bitorder="little").reshape(-1, 32)
    which, bit = np.nonzero(bits)
    return words[which] * 32 + bit


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--tokenizer", default="bytes", help="a tekken*.json, or `bytes`")
    arguments.add_argument("--walks", type=int, default=10, help="answers per schema")
    arguments.add_argument("--max-tokens", type=int, default=120, help="most tokens beyond the minimum")
    arguments.add_argument("--part", default="1/1", help="I/N: only every Nth schema, from the Ith on")
    arguments.add_argument("--only", default="", help="only files whose name contains this")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--draft", default="", help="$schema of the cases that name none")
    arguments.add_argument("--whitespace", choices=["compact", "spaced", "flexible"], default="compact")
    arguments.add_argument("--key-order", choices=["schema", "any"], default="schema")
    arguments.add_argument("--peers", action="store_true", help="ask llguidance and xgrammar, too")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    vocabulary = read_vocabulary(options.tokenizer)
    compiler = Compiler(vocabulary)
    model = PretendModel(vocabulary, options.seed)
    peers = _peers() if options.peers else {}
    findings = Findings()
    first, every = map(int, options.part.split("/"))
    begin = time.process_time()
    for name, group in cases(options.folder, options.only)[first - 1 :: every]:
        schema = group["schema"]
        if options.draft and isinstance(schema, dict):
            schema = {"$schema": options.draft, **schema}
        try:
            constraint = compiler.json_schema(schema, whitespace=options.whitespace, key_order=options.key_order)
        except PhloemError as error:
            findings.outcomes[f"not compiled: {type(error).__name__}"] += 1
            continue
        findings.outcomes["compiled"] += 1
        walk(name, schema, constraint, model, peers, findings, options)
    report(findings, time.process_time() - begin)
    sys.exit(1 if findings.failures else 0)


def walk(
    name: str,
    schema: Any,
    constraint: Constraint,
    model: PretendModel,
    peers: dict[str, Any],
    findings: Findings,
    options: argparse.Namespace,
) -> None:
    """Samples one schema and judges every answer."""
    kind = validator_for(schema, default=Draft202012Validator)
    judge = kind(schema, format_checker=kind.FORMAT_CHECKER)
    takers = {peer: compiled for peer, make in peers.items() if (compiled := make(schema, options.whitespace))}
    random_ = random.Random(f"{options.seed}/{name}")
    for index in range(options.walks):
        temperature = TEMPERATURES[index % len(TEMPERATURES)]
        slack = random_.choice((0, 1, 3, 10, 30, options.max_tokens))
        try:
            most = constraint.min_tokens() + slack
            text, problem = model.answer(constraint, random_, temperature, index % 2 == 0, most)
        except PhloemError as error:  # an automaton that outgrows its bound on the way
            text, problem = b"", f"{type(error).__name__}: {error}"
        try:
            problem = problem or verdict(judge, text)
        except Exception as broken:  # schemas that the judge cannot read
            findings.num_unjudged += 1
            findings.refused_by_others.setdefault(f"{name} {type(broken).__name__}", str(broken)[:200])
        findings.temperatures[temperature] += 1
        findings.lengths.append(len(text))
        findings.num_bytes += len(text)
        if problem:
            findings.failures.append(
                f"{name} (temperature {temperature}): {problem}\n  text {text.decode(errors='replace')[:600]}\n"
                f"  schema {json.dumps(schema, ensure_ascii=False)[:600]}"
            )
            print(findings.failures[-1], flush=True)
        for peer, taken in takers.items():
            fine = taken(text)
            findings.peers[f"{peer} {'takes' if fine else 'refuses'}"] += 1
            if not fine:
                findings.refused_by_others.setdefault(f"{name} {peer}", text.decode(errors="replace")[:200])


def verdict(judge: Any, text: bytes) -> str:
    """Why the text is wrong; empty if it is right."""
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            repeated.append(repr(pairs)[:200])
        return found

    try:
        error = next(iter(judge.iter_errors(json.loads(text, object_pairs_hook=members))), None)
    except ValueError as broken:
        return f"no JSON ({broken})"
    if repeated:
        return f"a key twice in one object ({repeated[0]})"
    return "" if error is None else f"invalid ({error.message[:200]} at {error.json_path})"


def report(findings: Findings, seconds: float) -> None:
    """Prints what was found."""
    for outcome, count in sorted(findings.outcomes.items()):
        print(f"schemas {outcome}: {count}")
    lengths = sorted(findings.lengths) or [0]
    print(f"answers: {len(findings.lengths)}, failures: {len(findings.failures)}, CPU seconds: {seconds:.0f}")
    shares = ", ".join(f"{temperature}: {count}" for temperature, count in sorted(findings.temperatures.items()))
    print(f"answers by temperature: {shares}")
    print(f"bytes per answer: median {lengths[len(lengths) // 2]}, longest {lengths[-1]}, in all {findings.num_bytes}")
    print(f"answers over which the judge itself stumbles: {findings.num_unjudged}")
    if findings.peers:
        print(f"peers: {dict(sorted(findings.peers.items()))}")
    for place, text in sorted(findings.refused_by_others.items()):
        print(f"not taken, {place}: {text}")


def read_vocabulary(path: str) -> Vocabulary:
    """The tokens of a tekken*.json file, or the 256 bytes."""
    if path == "bytes":
        return Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256])
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    size, num_special = data["config"]["default_vocab_size"], data["config"]["default_num_special_tokens"]
    tokens = [b""] * size
    for entry in data["vocab"][: size - num_special]:
        tokens[num_special + entry["rank"]] = base64.b64decode(entry["token_bytes"])
    return Vocabulary(tokens, [2])


# ---------------------------------------------------------------- peers


def _peers() -> dict[str, Any]:
    """For each peer a function (schema, whitespace) -> (text -> taken), or None if it does not compile."""
    return {"llguidance": _llguidance(), "xgrammar": _xgrammar()}


def _llguidance() -> Any:
    import llguidance

    class Tokens:
        def __init__(self) -> None:
            self.tokens = [bytes((byte,)) for byte in range(256)] + [b"<eos>"]
            self.special_token_ids = [256]
            self.eos_token_id, self.bos_token_id = 256, None

        def __call__(self, text: Any) -> list[int]:
            return list(text if isinstance(text, bytes) else text.encode())

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()))

    def compiled(schema: Any, whitespace: str) -> Any:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_flexible": True}
        )
        if llguidance.LLMatcher(tokenizer, grammar, log_level=0).is_error():
            return None

        def taken(text: bytes) -> bool:
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
            return matcher.try_consume_tokens(list(text)) == len(text) and matcher.is_accepting()

        return taken

    return compiled


def _xgrammar() -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [bytes((byte,)) for byte in range(256)] + [b"<eos>"],
        vocab_type=xgrammar.VocabType.RAW,
        stop_token_ids=[256],
    )
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def compiled(schema: Any, whitespace: str) -> Any:
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        except Exception:
            return None

        def taken(text: bytes) -> bool:
            matcher = xgrammar.GrammarMatcher(grammar)
            return all(matcher.accept_token(byte) for byte in text) and matcher.accept_token(256)

        return taken

    return compiled


if __name__ == "__main__":
    main()
