"""What stands between a newcomer and the first answer: CPU time from nothing, and with what the first start has left.

    python bench/first_answer.py [--only plan serve] [--wheel FILE.whl] [--make]

Every row is a command in processes of its own; printed is the CPU time of all of them, and what is allowed. "clone"
runs a copy of this checkout that has nothing but its files and the core that set-up built; "wheel" the contents of a
wheel (`scripts/build_wheels.py`); "again" the same command in the clone once more. No copy has a cache, and the home
folder is an empty one. What the interpreter of this environment has compiled of its packages stays: set-up does that.

`--make` adds `make demo` and `make test` in a fresh clone, in wall time: it takes a quarter of an hour and fetches the
dependencies. Where llguidance is installed, its first mask over the same vocabulary and schema is printed next to ours.

Ends with 1 if any figure is above what is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PORT = 18_231
_NAME, _AGE = {"type": "string"}, {"type": "integer"}
SCHEMA = json.dumps({"type": "object", "properties": {"name": _NAME, "age": _AGE}, "required": ["name"]})
VOCABULARY_SIZE = 131_072

FIRST_MASK = """
import sys
from phloem.fsm import Compiler, Vocabulary
tokens = [bytes.fromhex(line) for line in open(sys.argv[1])]
compiler = Compiler(Vocabulary(tokens, [0]))
cursor = compiler.json_schema(sys.argv[2]).cursor()
print(sum(int(word).bit_count() for word in cursor.row().tolist()), "tokens may come first")
"""
FIRST_MASK_PEER = """
import sys, json, numpy
import llguidance, llguidance.numpy
tokens = [bytes.fromhex(line) for line in open(sys.argv[1])]
class Tokens:
    eos_token_id, bos_token_id, tokens = 0, None, tokens
    special_token_ids = [0]
    def __call__(self, text): raise NotImplementedError
tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()))
matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(sys.argv[2]))
bits = llguidance.numpy.allocate_token_bitmask(1, len(tokens))
llguidance.numpy.fill_next_token_bitmask(matcher, bits, 0)
"""


@dataclass(frozen=True)
class Row:
    """A command; the CPU seconds that it may take from a clone, from a wheel, and again (None: no bar)."""

    name: str
    run: Callable[[Place], float]
    clone: float | None
    wheel: float | None
    again: float | None = None


@dataclass(frozen=True)
class Place:
    """A folder with the package `phloem`, and the environment that finds it before any other."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.folder), "HOME": str(self.folder / "home"), "OMP_NUM_THREADS": "2"}
        own |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
        given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**given, **own}

    def seconds(self, *command: str) -> float:
        """CPU seconds of a Python process, and of all that it starts; fails if the process does."""
        before = cpu_of_children()
        process = subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        if process.returncode:
            raise SystemExit(f"{' '.join(command)[:200]}\n{process.stdout}{process.stderr}")
        return cpu_of_children() - before


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def clone(folder: Path) -> Place:
    """This checkout's files, changes included, and the core that has been built."""
    target = folder / "phloem"
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    for built in ROOT.glob("_core*.so"):
        shutil.copyfile(built, target / built.name)
    return Place(folder)


def unpacked(wheel: Path, folder: Path) -> Place:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return Place(folder)


# ------------------------------------------------------------------------------------------------------------ commands


def python(code: str, *arguments: str) -> Callable[[Place], float]:
    return lambda place: place.seconds("-c", code, *arguments)


def phloem(*arguments: str) -> Callable[[Place], float]:
    return lambda place: place.seconds("-m", "phloem", *arguments)


def serve(place: Place) -> float:
    """Until `/ready`; the processes are ended then, and the resident memory of the server is printed."""
    before = cpu_of_children()
    command = [sys.executable, "-m", "phloem", "serve", "nano", "--port", str(PORT)]
    log = place.folder / "serve.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=place.folder, env=place.environment, stdout=out, stderr=out)
    try:
        while not is_ready():
            if process.poll() is not None:
                raise SystemExit(f"phloem serve ended\n{log.read_text()}")
            time.sleep(0.1)
        time.sleep(2.0)
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        print(f"  (resident memory of the server at rest: {kilobytes / 1000:.0f} MB; 400 are allowed)")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    return cpu_of_children() - before


def is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def write_vocabulary(path: Path) -> None:
    """All bytes, JSON's usual pieces, and words of random letters, a token in hexadecimal digits on each line."""
    rng = random.Random(0)
    pieces = {b'","', b'":"', b'":', b'{"', b'"}', b"},{", b'":[', b"]}", b'":{"', b"true", b"false"}
    while len(pieces) < VOCABULARY_SIZE - 257:
        word = "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=rng.randint(2, 9)))
        pieces.add((rng.choice(["", " ", " ", '"']) + word + rng.choice(["", "", "", '"', '":', "."])).encode())
    tokens = [b"<end>", *(bytes([byte]) for byte in range(256)), *sorted(pieces)]
    path.write_text("".join(token.hex() + "\n" for token in tokens))


def rows(vocabulary: Path, model_config: Path, schema: Path) -> list[Row]:
    generate = phloem("generate", "hello", "--model", "nano", "--max-tokens", "16")
    return [
        Row("import phloem", python("import phloem"), 0.3, 0.3),
        Row("import phloem.fsm", python("import phloem.fsm"), 0.5, 0.5),
        Row("first mask of a schema, 131k tokens", python(FIRST_MASK, str(vocabulary), SCHEMA), 8, 1.5),
        Row("phloem generate hello", generate, 20, 4, 2.5),
        Row("phloem inspect --schema", phloem("inspect", "--schema", str(schema)), 15, 3, 2.5),
        Row("ph.explain", python("import phloem as ph, sys; ph.explain(ph.json_schema(sys.argv[1]))", SCHEMA), 15, 3),
        Row("phloem plan", phloem("plan", str(model_config.parent)), 1.5, 1.5, 1.0),
        Row("phloem --help", phloem("--help"), None, None, 0.3),
        Row("phloem serve until ready", serve, 60, 8),
    ]


def has_llguidance() -> bool:
    return subprocess.run([sys.executable, "-c", "import llguidance.numpy"], capture_output=True).returncode == 0


def time_make(folder: Path) -> bool:
    """`make demo` and `make test` in a fresh clone; whether both are as quick as they should be."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    is_quick = True
    for goal, minutes in (("demo", 2), ("test", 8)):
        begin = time.monotonic()
        subprocess.run(["make", goal], cwd=folder, check=True)
        took = (time.monotonic() - begin) / 60
        print(f"make {goal:37} {took:6.1f} minutes of wall time; {minutes} are allowed", flush=True)
        is_quick &= took <= minutes
    return is_quick


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="words; only rows whose name contains one of them")
    parser.add_argument("--wheel", type=Path, help="also from this wheel")
    parser.add_argument("--make", action="store_true", help="also `make demo` and `make test`, in a fresh clone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_vocabulary(folder / "tokens.txt")
        (folder / "schema.json").write_text(SCHEMA)
        model_config = ROOT / "runtime" / "assets" / "nano" / "config.json"
        all_rows = rows(folder / "tokens.txt", model_config, folder / "schema.json")
        chosen = [row for row in all_rows if not options.only or any(word in row.name for word in options.only)]
        print(f"{'CPU seconds (allowed)':40} {'clone':>14} {'wheel':>14} {'again':>14}")
        is_above = False
        for number, row in enumerate(chosen):
            cells = []
            place = clone(folder / f"clone{number}")
            figures = [(row.run(place), row.clone), (None, row.wheel), (row.run(place), row.again)]
            if options.wheel:
                figures[1] = (row.run(unpacked(options.wheel, folder / f"wheel{number}")), row.wheel)
            for took, allowed in figures:
                cells.append("" if took is None else f"{took:.2f}" + (f" ({allowed:g})" if allowed else ""))
                is_above |= took is not None and allowed is not None and took > allowed
            print(f"{row.name:40} " + " ".join(f"{cell:>14}" for cell in cells), flush=True)
            shutil.rmtree(place.folder, ignore_errors=True)
        if has_llguidance() and any("first mask" in row.name for row in chosen):
            took = Place(folder).seconds("-c", FIRST_MASK_PEER, str(folder / "tokens.txt"), SCHEMA)
            print(f"{'  llguidance, the same':40} {took:14.2f}")
        if options.make:
            is_above |= not time_make(folder / "made")
    if is_above:
        raise SystemExit("above what is allowed")


if __name__ == "__main__":
    main()
