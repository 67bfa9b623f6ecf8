"""Invented answers of the live page's data routes, drawn from a seed and the time.

A tree of any size that changes every second, requests in every phase, a miss for every reason, a picture that tries to
run scripts: what a real server cannot be made to say at will.
"""

from __future__ import annotations

import json
import math
import struct
import time
from array import array
from random import Random
from typing import Any

COLUMNS = "id", "parent", "num_tokens", "num_blocks", "age_ms", "hits", "namespace", "leases", "pinned", "rank"
NAMESPACES = ["default", "salt 1", "salt 2", "adapter sql"]
PHASES = "decode", "decode", "prefill", "decode", "waiting"
SENTENCES = [
    ("never_seen", "The first 2,012 tokens were cached; after “the invoice of ” no earlier prompt goes on like this."),
    ("evicted", "The next block was cached until 41 s ago, when its room was needed."),
    ("block_rounding", "All but the last 9 tokens were cached; they do not fill a block."),
    ("other_namespace", "The same text is cached in another namespace, which this request may not use."),
]


HOSTILE_SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 90 60"
 onload="window.broken = 1"><style>* { fill: red }</style><script>window.broken = 2</script>
<g transform="translate(1,2)" onclick="window.broken = 3" style="fill: red">
<circle cx="20" cy="30" r="15" fill="#8a94a0"/>
<text x="20" y="34">&lt;b&gt;0</text></g><image href="http://192.0.2.1/a.png"/><use xlink:href="#a"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml">
<img src="x" onerror="window.broken = 4"/></body></foreignObject>
<a href="javascript:window.broken = 5"><text x="2" y="2">go</text></a>
<rect width="5" height="5" fill="url(http://192.0.2.1/)"/>
</svg>"""


PLAIN_SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 60"><circle cx="20" cy="30" r="15"/></svg>"""


class MadeUpTree:
    """System prompts with chats below them; each look may age it and grow it."""

    def __init__(self, num_nodes: int, seed: int = 7) -> None:
        self._random = Random(seed)
        self.rows: list[list[int]] = []
        self.started = time.monotonic()
        for _ in range(num_nodes):
            self._grow()

    def _grow(self) -> None:
        number, draw = len(self.rows), self._random
        if number < len(NAMESPACES):
            parent, blocks, namespace = -1, (125, 60, 40, 24)[number], number
        else:
            above = self.rows[min(int(number * draw.random() ** (1.4 if draw.random() < 0.5 else 4)), number - 1)]
            parent, blocks = above[0], 1 + int(min(40.0, draw.expovariate(0.16)))
            namespace = above[6]
            above[5] += 1
        age = int(10 ** draw.uniform(2.5, 7.2))
        self.rows.append(
            [number * 3 + 1, parent, blocks * 16, blocks, age, int(draw.paretovariate(0.9)) - 1, namespace, 0, 0, -1]
        )

    def columns(self, requests: list[dict[str, Any]]) -> list[array[int]]:
        held = {request["node"] for request in requests}
        elapsed = int(1000 * (time.monotonic() - self.started))
        parents = {row[1] for row in self.rows}
        rank = 0
        found = [array("i", bytes(4 * len(self.rows))) for _ in COLUMNS]
        for place, row in enumerate(self.rows):
            leased, leaf = row[0] in held, row[0] not in parents
            row[9] = rank if leaf and not leased else -1
            rank += row[9] >= 0
            values = [
                *row[:4],
                200 if leased else row[4] + elapsed,
                row[5],
                row[6],
                int(leased),
                int(place in (0, 9)),
                row[9],
            ]
            for column, value in zip(found, values, strict=True):
                column[place] = min(value, 2**31 - 1)
        return found


class MadeUp:
    """All answers of the data routes."""

    def __init__(self, num_nodes: int, *, admin: bool) -> None:
        self.tree = MadeUpTree(num_nodes)
        self.admin = admin
        self.began = time.monotonic()

    def requests(self) -> list[dict[str, Any]]:
        tick, rows = int(time.monotonic() - self.began), self.tree.rows
        found = []
        for i in range(min(14, len(rows))):
            phase = PHASES[i % len(PHASES)]
            node = rows[(i * 7919 + (tick // (3 + i % 4)) * 131) % min(len(rows), 120)]
            prompt = 600 + 97 * i
            found.append(
                {
                    "request_id": f"chatcmpl-{i * 7919 + 4096:x}",
                    "index": 0,
                    "node": -1 if phase == "waiting" else node[0],
                    "phase": phase,
                    "num_tokens": prompt + tick % 60,
                    "num_prompt_tokens": prompt,
                    "num_computed_tokens": (tick * 128) % prompt
                    if phase == "prefill"
                    else prompt
                    if phase == "decode"
                    else 0,
                    "num_output_tokens": tick % 60 if phase == "decode" else 0,
                }
            )
        return found

    def snapshot(self, generation: str | None) -> bytes | None:
        now = str(int(time.monotonic() - self.began))
        if now == generation:
            return None
        requests = self.requests()
        header = {
            "generation": int(now),
            "num_nodes": len(self.tree.rows),
            "columns": list(COLUMNS),
            "namespaces": NAMESPACES if self.tree.rows else [],
            "requests": requests,
            "num_blocks": max(64, 2 * sum(row[3] for row in self.tree.rows)),
            "block_size": 16,
            "num_nodes_left_out": 0,
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 4)
        return (
            struct.pack("<I", len(text)) + text + b"".join(column.tobytes() for column in self.tree.columns(requests))
        )

    def node(self, number: int) -> dict[str, Any] | None:
        row = next((row for row in self.tree.rows if row[0] == number), None)
        if row is None:
            return None
        held = [request["request_id"] for request in self.requests() if request["node"] == number]
        sentence = "No request holds it and 3 leaves were used longer ago, so it would be evicted after them."
        return {
            "id": number,
            "num_tokens": row[2],
            "num_blocks": row[3],
            "age_seconds": row[4] / 1000,
            "hits": row[5],
            "namespace": NAMESPACES[row[6]],
            "children": sum(other[1] == number for other in self.tree.rows),
            "held_by": held,
            "pinned_seconds": None,
            "rank": None if held or row[9] < 0 else row[9],
            "sentence": "A request holds it, so it stays." if held else sentence,
            "text": "You are a careful assistant. <b>Summarise</b> the invoice of 3 May, and be brief.\n" * 12
            if self.admin
            else None,
        }

    def now(self) -> dict[str, Any]:
        seconds = time.monotonic() - self.began
        wave = math.sin(seconds / 7)
        return {
            "time": seconds,
            "queue": max(0, round(3 + 4 * wave)),
            "running": 11,
            "seats": 16,
            "step_ms": {"p50": 11.2 + wave, "p99": 38.4 + 6 * wave},
            "tokens_per_second": {"output": 812 + 160 * wave, "prompt": 5100 + 2400 * math.sin(seconds / 3)},
            "ttft_ms": {"p50": 84.0 + 20 * wave, "p95": 310.0, "p99": 702.0, "n": 412},
            "inter_token_ms": {"p50": 13.1 + wave, "p95": 31.0, "p99": 58.0, "n": 61022},
            "pool": {"num_blocks": 8192, "free": 1310, "leased": 2204, "cached": 4678, "pinned": 250},
            "tiers": [{"name": "host", "bytes": 3 << 30}, {"name": "folder", "bytes": 41 << 30}],
            "preemptions": 3,
            "hit_rate": 0.617,
            "evictions": 18204,
            "prompt_tokens": 9_120_400,
            "cached_tokens": 5_627_100,
            "generated_tokens": 812_220,
            "jumped_tokens": 60_114,
            "drafts": [
                {"by": "forced", "drafted": 9_410, "right": 9_402},
                {"by": "lookup", "drafted": 61_300, "right": 50_700},
                {"by": "model", "drafted": 14, "right": 12},
            ],
            "draft_model_rests": True,
            "what_if": {
                "seconds_ago": 12.5,
                "sizes": [
                    {"num_blocks": 4096, "hit_rate": 0.402},
                    {"num_blocks": 8192, "hit_rate": 0.617},
                    {"num_blocks": 16384, "hit_rate": 0.731},
                    {"num_blocks": 32768, "hit_rate": 0.748},
                ],
                "policies": [
                    {"name": "lru", "hit_rate": 0.617},
                    {"name": "lfu", "hit_rate": 0.588},
                    {"name": "priority", "hit_rate": 0.617},
                    {"name": "cost", "hit_rate": 0.641},
                    {"name": "optimum", "hit_rate": 0.702},
                ],
            },
            "misses": [
                {
                    "seconds_ago": 4.2 + 9 * i,
                    "request_id": f"chatcmpl-{i * 999:x}",
                    "reason": reason,
                    "sentence": sentence,
                }
                for i, (reason, sentence) in enumerate(SENTENCES)
            ],
        }

    def about(self) -> dict[str, Any]:
        return {
            "model": "nano", "models": ["nano", "sql"], "version": "1.0", "admin": self.admin, "has_text": True,
            "has_chat": True, "thinks": False, "max_model_len": 4096, "vocab_size": 32000, "block_size": 16,
            "num_blocks": 8192, "ranks": 2, "draft_model": "nano-small",
        }  # fmt: skip

    def constraint(self, question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The letter x is in no language; a source with "bad" in it is refused there, "hostile" has such a picture."""
        source, text = str(question["source"]), question["text"]
        if "bad" in source:
            error = {"message": "offset: it is bad; write good", "pointer": f"offset {source.index('bad')}"}
            return 400, {"error": {**error, "reason": "it is bad", "part": "bad\n^", "remedy": "write good"}}
        valid = 0 if text is None else (text + "x").index("x")
        leaves = text is not None and valid < len(text)
        sentence = f"'x' is not allowed at line 1, column {valid + 1}." if leaves else "The text is complete."
        svg = HOSTILE_SVG if "hostile" in source else PLAIN_SVG
        return 200, {
            "ok": True, "enforced": [{"pointer": "/type", "keyword": "type", "how": "only these types are written"}],
            "forced_text": "", "shortest": "{}", "shortest_tokens": 1, "num_states": 3, "svg": svg,
            "compile_ms": 0.4, "first_mask_us": 183.0, "mask_us": 13.0,
            "steps": None if text is None else {"valid_up_to": valid, "complete": not leaves, "sentence": sentence},
            "next": {"count": 300, "tokens": [{"id": i, "text": f"<i>{i}"} for i in range(40)]},
        }  # fmt: skip
