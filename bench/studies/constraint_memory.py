"""Memory for many different schemas that are used once: how much it grows, and what the counters say.

    python bench/studies/constraint_memory.py CASES [--vocabulary nano | FILE] [--num 1000] [--max-mib 256] [--peers]

Compiles the schemas of a folder (`{"schema": …, "tests": […]}`), each once, walks one valid instance through the mask
of every token, and drops everything. Printed every 100 schemas: growth of the resident memory since the vocabulary
was prepared, and the bytes that the compiler counts. With --peers llguidance and xgrammar do the same work, each in a
process of its own, as shipped.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import warnings
from pathlib import Path
from typing import Any

from real_vocabularies import read_vocabulary
from schema_cases import cases

from phloem.errors import PhloemError
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.foresight import forced_tokens


def resident() -> float:
    """MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 2**20


def texts(group: dict[str, Any]) -> bytes:
    """A valid instance, or an empty one."""
    for test in group.get("tests", []):
        if test["valid"]:
            return json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b""


def tokens_of(vocabulary: Vocabulary, text: bytes) -> list[int]:
    try:
        return vocabulary.encode(text.decode()) if vocabulary.encode else list(text)
    except (UnicodeDecodeError, PhloemError):
        return []


def ours(vocabulary: Vocabulary, groups: list[tuple[str, dict[str, Any]]], options: argparse.Namespace) -> None:
    compiler = Compiler(vocabulary, max_cached_bytes=options.max_mib << 20)
    compiler.warm_up()
    base, most, count = resident(), 0, 0
    for _, group in groups:
        try:
            cursor = compiler.json_schema(group["schema"]).cursor()
        except PhloemError:
            continue
        for token_id in tokens_of(vocabulary, texts(group)):
            cursor.row()
            if not cursor.advance(token_id):
                break
            forced_tokens(cursor)
        count += 1
        most = max(most, compiler.num_cached_bytes)
        if count % 100 == 0 or count == options.num:
            counted = f"counted {most / 2**20:7.1f} MiB at most"
            print(f"phloem      {count:5} schemas: resident +{resident() - base:7.1f} MiB, {counted}", flush=True)
        if count == options.num:
            break
    compiler.clear()
    del cursor
    print(
        f"phloem      dropped: resident +{resident() - base:7.1f} MiB, counted {compiler.num_cached_bytes / 2**20:7.1f}"
    )


def llguidance(vocabulary: Vocabulary, groups: list[tuple[str, dict[str, Any]]], options: argparse.Namespace) -> None:
    import llguidance as peer

    class Tokens:
        def __init__(self) -> None:
            self.eos_token_id = vocabulary.eos_ids[0]
            self.bos_token_id = None
            self.tokens = list(vocabulary.tokens)
            self.special_token_ids = [i for i, token in enumerate(vocabulary.tokens) if not token]

        def __call__(self, data: bytes | str) -> list[int]:
            return tokens_of(vocabulary, data if isinstance(data, bytes) else data.encode())

    wrapper = peer.LLTokenizer(peer.TokenizerWrapper(Tokens()))
    kept, base, count = [], resident(), 0
    for _, group in groups:
        try:
            matcher = peer.LLMatcher(wrapper, peer.LLMatcher.grammar_from_json_schema(group["schema"]))
            if matcher.is_error():
                continue
        except Exception:
            continue
        for token_id in tokens_of(vocabulary, texts(group)):
            matcher.compute_bitmask()
            if not matcher.consume_token(token_id):
                break
        kept.append(matcher)
        count += 1
        if count % 250 == 0 or count == options.num:
            print(f"llguidance  {count:5} schemas: resident +{resident() - base:7.1f} MiB (all matchers kept)")
        if count == options.num:
            break


def xgrammar(vocabulary: Vocabulary, groups: list[tuple[str, dict[str, Any]]], options: argparse.Namespace) -> None:
    import xgrammar as peer

    info = peer.TokenizerInfo(
        list(vocabulary.tokens), peer.VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.eos_ids)
    )
    compiler = peer.GrammarCompiler(info, max_threads=1)
    bitmask, base, count = peer.allocate_token_bitmask(1, vocabulary.size), resident(), 0
    for _, group in groups:
        if len(json.dumps(group["schema"])) > 3000:  # larger ones may take minutes
            continue
        try:
            matcher = peer.GrammarMatcher(compiler.compile_json_schema(json.dumps(group["schema"])))
        except Exception:
            continue
        for token_id in tokens_of(vocabulary, texts(group)):
            matcher.fill_next_token_bitmask(bitmask)
            if not matcher.accept_token(token_id):
                break
        count += 1
        if count % 100 == 0 or count == options.num:
            grown = f"resident +{resident() - base:7.1f} MiB"
            print(f"xgrammar    {count:5} schemas: {grown} (of at most 3,000 characters)", flush=True)
        if count == options.num:
            break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", default="nano")
    parser.add_argument("--num", type=int, default=1000)
    parser.add_argument("--max-mib", type=int, default=256)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    vocabulary, groups = read_vocabulary(options.vocabulary), cases(options.folder, "")
    for engine in (ours, llguidance, xgrammar) if options.peers else (ours,):
        process = multiprocessing.get_context("fork").Process(target=engine, args=(vocabulary, groups, options))
        process.start()
        process.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
