"""The kinds of programs that SGLang's paper measures, in phloem's DSL: what cache, forks and jumps bring to each.

    python bench/programs.py [--items 4] [--rounds 3] [--threads 1] [--skip-transformers]
    python bench/programs.py --shape smollm-135m --items 1 --rounds 1

Each program runs for several items in five ways that take turns; each round starts with an empty cache:

    on             all items at the same time: prefix cache, jump-forward and look-up drafts
    off            one request after the other, without any of these; so each branch of a fork computes its whole prompt
    transformers   the requests of "on" one after the other in `generate`, greedily, each with as many new tokens as
                   phloem wrote, where jumped tokens are sampled too. It has no constraints: those are left out. Of a
                   `select` it computes prompt and choice once for each choice
    http           as "on", on phloem's server on a loopback port; server and client share this process

Seconds are medians over the rounds, after a round to warm up, whose tokens are counted: of "on" those of prompts,
computed, from the cache and jumped; of "off" computed ones. On, off and HTTP must say the same, to the last token.

`smollm-135m` is a random checkpoint, made for the run, with all layers of SmolLM-135M and the vocabulary of the
bundled model; what it says makes no sense, but its constraints hold, and its forwards cost what they cost.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tiers import checkpoint

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.serve import listen, server_of, url_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from nano_text import KINDS, SCHEMAS, SYSTEM_PROMPT, Document, documents

OFF = {"prefix_cache": False, "jump": "off", "lookup_drafts": False, "max_running_requests": 1}
WAYS = ("on", "off", "transformers", "http")
COUNTS = ("prompt_tokens", "num_computed_tokens", "cached_tokens", "jumped_tokens")
NUM_SHOTS = 5
SERVER_PATIENCE = 120.0  # seconds

# -- the programs ------------------------------------------------------------------------------------------------------


def few_shot(s: ph.ProgramState, item: Document) -> None:
    """Multiple choice after examples that all items share."""
    s += ph.system(SYSTEM_PROMPT)
    for shot in documents(seed=1, count=NUM_SHOTS):
        s += ph.user(f"{shot.text}\n\nWhat is it about?") + ph.assistant(shot.kind.name)
    s += ph.user(f"{item.text}\n\nWhat is it about?") + ph.assistant(ph.select("kind", list(KINDS)))


def tree_of_thought(s: ph.ProgramState, item: Document) -> object:
    """Three plans, two ways of carrying out each, and a vote among the six."""
    s += ph.system(SYSTEM_PROMPT) + ph.user_begin() + f"{item.text}\n\n"
    plans = s.fork(3)
    plans += lambda i: f"Plan {i + 1}: what matters here?" + ph.user_end() + ph.assistant(ph.gen("plan", max_tokens=16))
    leaves = [leaf for plan in plans for leaf in plan.fork(2)]
    for number, leaf in enumerate(leaves):
        leaf += ph.user(f"Solution {number % 2 + 1}?") + ph.assistant(ph.gen("solution", max_tokens=16))
    found = "\n".join(f"{number + 1}: {leaf['solution']}" for number, leaf in enumerate(leaves))
    s += f"{found}\nWhich is the best?" + ph.user_end() + ph.assistant(ph.select("best", list("123456")))
    return [plan["plan"] for plan in plans]


def skeleton_of_thought(s: ph.ProgramState, item: Document) -> None:
    """Short headings, which are then expanded side by side."""
    s += ph.system(SYSTEM_PROMPT) + ph.user(f"{item.text}\n\nGive four headings.")
    s += ph.assistant(
        ph.gen("headings", regex="1\\. [a-z ]{2,9}\n2\\. [a-z ]{2,9}\n3\\. [a-z ]{2,9}\n4\\. [a-z ]{2,9}")
    )
    forks = s.fork(4)
    forks += lambda i: ph.user(f"Say more about heading {i + 1}.") + ph.assistant(ph.gen("part", max_tokens=20))
    forks.join()
    s += ph.user("\n".join(s["part"]) + "\n\nIn one line:") + ph.assistant(ph.gen("whole", max_tokens=16))


def react(s: ph.ProgramState, item: Document) -> None:
    """Thought, act and observation in turn; what the tool answers is scripted."""
    s += ph.system(f"{SYSTEM_PROMPT} Use the tool as in these examples.")
    for shot in documents(seed=3, count=2):
        s += ph.user(f"Find a {shot.kind.name}.")
        s += ph.assistant(f"Thought: I look it up.\nAct: look up {shot.kind.name}\nObservation: {shot.text}")
    s += ph.user(f"Find a {item.kind.name}.") + ph.assistant_begin()
    for step, observation in enumerate(re.split(r"\n|(?<=\.) ", item.text, maxsplit=2)):
        s += "Thought: " + ph.gen(f"thought {step}", max_tokens=12, stop="\n")
        s += "\nAct: " + ph.gen(f"act {step}", regex="(look up|open|finish) [a-z]{1,8}", max_tokens=16)
        s += f"\nObservation: {observation}\n"
    s += "Answer: " + ph.gen("answer", max_tokens=12, stop="\n") + ph.assistant_end()


def json_decode(s: ph.ProgramState, item: Document) -> None:
    """An object under the schema of its kind."""
    s += ph.system(SYSTEM_PROMPT) + ph.user(f"{item.text}\n\nExtract the {item.kind.name} as JSON.")
    s += ph.assistant(ph.gen("json", json_schema=SCHEMAS[item.kind.name], max_tokens=192))


def chat(s: ph.ProgramState, item: Document) -> None:
    """Four turns about one document."""
    s += ph.system(SYSTEM_PROMPT) + ph.user(f"{item.text}\n\nWho or what is it?")
    for turn, question in enumerate(("When is it?", "Which city?", "How many?", "")):
        s += ph.assistant(ph.gen(f"turn {turn}", max_tokens=24))
        s += ph.user(question) if question else ""


def judge(s: ph.ProgramState, item: Document) -> object:
    """A text judged in four ways side by side, each with a grade; then a verdict over all of them."""
    s += ph.system("You judge texts.") + ph.user_begin() + f"{item.text}\n\n"
    forks = s.fork(4)
    views = ("clear", "complete", "brief", "polite")
    forks += lambda i: f"Is this text {views[i]}?" + ph.user_end()
    forks += ph.assistant(ph.gen("reason", max_tokens=16) + "\nGrade: " + ph.gen("grade", regex="[1-5] of 5"))
    forks.join()
    said = "\n".join(f"{view}: {grade}" for view, grade in zip(views, s["grade"], strict=True))
    s += f"{said}\nIs it good?" + ph.user_end()
    s += ph.assistant(ph.gen("verdict", json_schema={"enum": ["good", "fair", "bad"]}, max_tokens=8))
    return s["reason"], s["grade"]


PROGRAMS: dict[str, Callable[[ph.ProgramState, Document], object]] = {
    "few-shot choice": few_shot,
    "tree of thought": tree_of_thought,
    "skeleton of thought": skeleton_of_thought,
    "ReAct agent": react,
    "JSON decode": json_decode,
    "multi-turn chat": chat,
    "LLM judge": judge,
}

# -- the ways to run them ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, weakref_slot=True)
class Recorder:
    """A backend that hands everything on to an engine and keeps what it was asked: prompt, and new tokens of each."""

    engine: ph.Engine
    streams: list[tuple[Sequence[int], ph.Stream]] = field(default_factory=list)
    scored: list[Sequence[int]] = field(default_factory=list)

    @property
    def tokenizer(self) -> Any:
        return self.engine.tokenizer

    def submit(self, prompt: Sequence[int], *arguments: Any, **options: Any) -> ph.Stream:
        stream = self.engine.submit(prompt, *arguments, **options)
        self.streams.append((list(prompt), stream))
        return stream

    def begin_scores(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]], **options: Any) -> Any:
        self.scored += [[*prompt, *continuation] for continuation in continuations]
        return self.engine.begin_scores(prompt, continuations, **options)

    def requests(self) -> list[tuple[Sequence[int], int]]:
        """Each prompt and how many tokens were written after it; 0 for a text that was only scored."""
        written = [(prompt, len(stream.completions()[0].token_ids)) for prompt, stream in self.streams]
        return [*written, *((text, 0) for text in self.scored)]


def run_program(name: str, items: Sequence[Document], backend: Any) -> list[tuple[list[int], Any]]:
    """The program for all items; of each the ids of all it says in the end, and what else its forks have said."""
    states = ph.function(PROGRAMS[name]).run_batch([(item,) for item in items], temperature=0.0, backend=backend)
    return [(state.token_ids(), state.ret_value) for state in states]


def run_transformers(model: Any, requests: Sequence[tuple[Sequence[int], int]]) -> None:
    for prompt, num_new in requests:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            if num_new:
                lengths = {"min_new_tokens": num_new, "max_new_tokens": num_new}
                model.generate(ids, do_sample=False, pad_token_id=0, **lengths)
            else:
                model(ids)


@contextmanager
def served(engine: ph.Engine) -> Iterator[str]:
    """The URL of a server over the engine."""
    bound = listen("127.0.0.1", 0)
    server = server_of(create_app(ph.AsyncEngine(engine), ServerSettings()), log_level="error", access_log=False)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield url_of(bound)
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(SERVER_PATIENCE)


# -- the table ---------------------------------------------------------------------------------------------------------


def measure(loaded: LoadedModel, options: argparse.Namespace, model: Any) -> None:
    """Runs everything and prints a row for each program as it is done, then their sum. model: transformers'."""

    def engine(**settings: Any) -> ph.Engine:
        config = EngineConfig(options.shape, device="cpu", num_threads=options.threads, num_blocks=8192, **settings)
        return ph.Engine.from_loaded(config, loaded)

    items = list(documents(seed=2, count=options.items))
    all_seconds: list[dict[str, float]] = []
    all_counts: list[list[int]] = []
    with engine() as on, engine(**OFF) as off, engine() as behind, served(behind) as url:
        print(f"{'':20}{'seconds, and how many times those of on':^53}{'tokens of on':^36}{'off':>9}")
        print(f"{'':20}" + "".join(f"{way:>{8 if way == 'on' else 15}}" for way in WAYS), end="")
        print("".join(f"{count:>9}" for count in ("prompts", "computed", "cached", "jumped", "computed")))
        for name in PROGRAMS:
            runs, counts = prepare(name, items, {"on": (on, on), "off": (off, off), "http": (behind, url)}, model)
            seconds: dict[str, list[float]] = {way: [] for way in runs}
            for _ in range(options.rounds):
                for way, run in runs.items():
                    for used in (on, off, behind):
                        used.flush_cache()
                    started = time.perf_counter()
                    run()
                    seconds[way].append(time.perf_counter() - started)
            all_seconds.append({way: statistics.median(times) for way, times in seconds.items() if times})
            all_counts.append(counts)
            print_row(name, all_seconds[-1], counts)
    sums = {way: sum(seconds[way] for seconds in all_seconds) for way in all_seconds[0]}
    print_row("all", sums, [sum(counts) for counts in zip(*all_counts, strict=True)])
    print("\non, off and http say the same, to the last token, in all programs")


def prepare(
    name: str, items: Sequence[Document], backends: dict[str, tuple[ph.Engine, Any]], model: Any
) -> tuple[dict[str, Callable[[], object]], list[int]]:
    """A call for each way to run a program, each tried once, and the counts of its row.

    backends: for each way the engine that computes and what programs name as backend.
    """
    runs: dict[str, Callable[[], object]] = {}
    counts: dict[str, list[int]] = {}
    recorder = Recorder(backends["on"][0])
    said = None
    for way, (engine, backend) in backends.items():
        engine.flush_cache()
        before = engine.statistics()
        found = run_program(name, items, recorder if way == "on" else backend)
        after = engine.statistics()
        counts[way] = [getattr(after, count) - getattr(before, count) for count in COUNTS]
        said = said or found
        if found != said:
            sys.exit(f"{name}: {way} says something else than on")
        runs[way] = partial(run_program, name, items, backend)
    if model is not None:
        runs["transformers"] = partial(run_transformers, model, recorder.requests())
    return runs, [*counts["on"], counts["off"][1]]


def print_row(name: str, seconds: dict[str, float], counts: Sequence[int]) -> None:
    own, *others = (seconds.get(way) for way in WAYS)
    cells = [f"{'-':>8}" if own is None else f"{own:>8.2f}"]
    cells += [
        f"{'-':>15}" if own is None or other is None else f"{other:>8.2f} {other / own:>4.1f} x" for other in others
    ]
    print(f"{name:20}{''.join(cells)}{''.join(f'{count:>9,}' for count in counts)}", flush=True)


def transformers_model(folder: Path) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["nano", "smollm-135m"], default="nano")
    parser.add_argument("--items", type=int, default=4, help="documents that each program runs for")
    parser.add_argument("--rounds", type=int, default=3, help="0: count and compare only")
    parser.add_argument("--threads", type=int, default=1, help="of phloem and of transformers")
    parser.add_argument("--skip-transformers", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as made:
        folder = checkpoint(options.shape, Path(made))
        options.shape = str(folder)
        loaded = load(EngineConfig(str(folder), device="cpu", dtype="float32", num_threads=options.threads))
        model = None if options.skip_transformers else transformers_model(folder)
        print(
            f"{platform.machine()}, {options.threads} thread(s), torch {torch.__version__}, {options.items} items;",
            end="",
        )
        print(f" load {os.getloadavg()[0]:.1f}\n")
        measure(loaded, options, model)


if __name__ == "__main__":
    main()
