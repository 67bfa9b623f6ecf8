"""Drafts along real instances: are they what the tokeniser writes there, and how much do they save?

    python bench/studies/drafts.py CASES [--vocabulary nano | FILE]... [--limit N]

CASES is a folder of files `{"schema": …, "tests": [{"valid": bool, "data": …}]}`. The canonical tokens of the first
valid instance of each case (compact, at most 4,000 bytes) are taken one by one; at each place the cursor's draft must
be the tokens that follow. Printed: places with a draft, drafts that differ (exits with 1), tokens saved when every
draft is taken, bytes that are forced, and the time of a draft.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

from real_vocabularies import read_vocabulary
from schema_cases import cases

from phloem.errors import PhloemError
from phloem.fsm import Compiler
from phloem.fsm.foresight import forced_tokens


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", action="append")
    parser.add_argument("--limit", type=int, default=0, help="at most N cases, evenly spread; 0: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    groups = cases(options.folder, "")
    groups = groups[:: max(1, len(groups) // options.limit)] if options.limit else groups
    num_odd = 0
    for name in options.vocabulary or ["nano"]:
        vocabulary = read_vocabulary(name)
        compiler = Compiler(vocabulary)
        num_texts = num_tokens = num_saved = num_drafts = num_bytes = num_forced = 0
        times: list[float] = []
        for case, group in groups:
            text = next(
                (
                    json.dumps(t["data"], separators=(",", ":"), ensure_ascii=False)
                    for t in group["tests"]
                    if t["valid"]
                ),
                "",
            )
            try:
                cursor = compiler.json_schema(group["schema"]).cursor()
            except PhloemError:
                continue
            if not text or len(text) > 4000 or vocabulary.encode is None:
                continue
            try:
                ids = vocabulary.encode(text)
            except PhloemError:
                continue
            if b"".join(vocabulary.tokens[t] for t in ids) != text.encode() or not all(map(cursor.advance, ids)):
                continue
            cursor.rollback(len(ids))
            num_texts, num_tokens, num_bytes = num_texts + 1, num_tokens + len(ids), num_bytes + len(text.encode())
            saved_until = 0
            for position, token_id in enumerate(ids):
                begin = time.process_time()
                draft = forced_tokens(cursor)
                times.append(1e6 * (time.process_time() - begin))
                num_drafts += bool(draft)
                if draft != ids[position : position + len(draft)]:
                    num_odd += 1
                    spelt = b"".join(vocabulary.tokens[t] for t in ids[:position])
                    if num_odd < 10:
                        print(f"{case}: after {spelt[-60:]!r} {[vocabulary.tokens[t] for t in draft]}")
                elif position >= saved_until:
                    num_saved += len(draft)
                    saved_until = position + len(draft) + 1  # the token after a draft is sampled with it
                cursor.advance(token_id)
            cursor.rollback(len(ids))
            forced_until = 0
            data = text.encode()
            for position in range(len(data)):
                if position >= forced_until:
                    state = cursor.constraint.automaton.advance_bytes(
                        cursor.constraint.automaton.start, data[:position]
                    )
                    forced_until = position + len(cursor.constraint.caches.drafts.run(state).data)
                num_forced += position < forced_until
        times.sort()
        print(
            f"{Path(name).name}: {num_texts} instances, {num_tokens} tokens; {num_drafts} places with a draft, "
            f"{num_odd} differ; {num_saved / num_tokens:.1%} of the tokens drafted, "
            f"{num_forced / num_bytes:.1%} of the bytes forced; "
            f"a draft takes {times[len(times) // 2]:.1f} us p50, {times[len(times) * 99 // 100]:.0f} p99, "
            f"{times[-1]:.0f} max"
        )
    return bool(num_odd)


if __name__ == "__main__":
    sys.exit(main())
