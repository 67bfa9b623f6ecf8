"""A batch job: one JSON object per line in, one per line out.

    python examples/batch_jsonl.py [FILE]

Every line is a run of the same program. The runs share one engine, which batches their requests and computes the
common system prompt once; results come in the order of the lines, each as soon as it and those before it are done.
"""

import json
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

import phloem as ph

SYSTEM = "You read documents. Answer briefly, or give JSON."


class Ticket(BaseModel):
    id: int = Field(ge=0, le=99999)
    user: str = Field(min_length=1, max_length=40)
    product: str = Field(min_length=1, max_length=40)
    priority: Literal["low", "medium", "high", "urgent"]
    open: bool


@ph.function
def extract(s, text):
    s += ph.system(SYSTEM) + ph.user(f"{text}\n\nExtract the ticket as JSON.")
    s += ph.assistant(ph.gen("ticket", json_schema=Ticket, max_tokens=100))


def main(path: Path) -> None:
    ph.set_default_backend(ph.Engine())
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    states = extract.run_batch(rows, temperature=0.0, generator_style=True)
    for state in states:
        ticket = state.parsed("ticket")  # a Ticket; state["ticket"] is its text
        print(ticket.model_dump_json())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("tickets.jsonl"))
