"""The code blocks of a page of the documentation, run in this process as a reader would type them.

A block of `python` that is followed by one of `text` shows what it prints, and one that is not prints nothing; after
one of `sh` what it prints may be left out. In what is shown, `…` stands for any text within a line, and a line that is
only `…` for any lines.

Of a `sh` block three kinds of lines are known: `cat > FILE <<'END'` writes a file, `phloem …` is a command, and
`curl …` is left to `runtime/server/test_documented_curl.py`. Of `phloem serve` and `phloem chat`, which would not end,
and of commands for a model of the reader's own, the options are read and no more. Comments are skipped. Any other line
is an error, unless the block is named as one that is not run.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer.main

from phloem.runtime.cli import command_line

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"cat > (\S+) <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)
ENDLESS = ("serve", "chat")
OF_THE_READER = "./my-model"  # what needs it is not run either


@dataclass(frozen=True)
class Block:
    """Code, where it is (`page.md:12`), and what the page shows of its output, if it does."""

    place: str
    language: str
    code: str
    shown: str | None


def blocks(page: Path) -> list[Block]:
    """In order. A block of output belongs to the block of code before it, if only one line is between them."""
    text = page.read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    made = []
    for index, match in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        has_output = (
            after is not None and after[1] in ("text", "json") and text[match.end() : after.start()].strip() == ""
        )
        shown = after[2] if has_output and after is not None else None
        line = text[: match.start()].count("\n") + 2
        made.append(Block(f"{page.name}:{line}", match[1], match[2], shown))
    return made


def is_shown(shown: str, printed: str) -> bool:
    """Whether this is what the page shows, as far as it shows it; the ends of lines do not count."""
    pattern = ""
    for line in shown.rstrip("\n").split("\n"):
        if line.strip() == "…":
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n"
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n") is not None


def run_python(block: Block, page: Path, names: dict[str, object]) -> str:
    """Runs it with the names of the blocks before it; what it prints. For the reader's own model it is compiled."""
    code = "\n" * (int(block.place.rpartition(":")[2]) - 1) + block.code  # a traceback names the line of the page
    compiled = compile(code, str(page), "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if OF_THE_READER not in block.code:
            exec(compiled, names)
    return printed.getvalue()


def shell_lines(block: Block) -> Iterator[list[str]]:
    """The commands of a `sh` block, as words; files that it writes are written first."""
    rest = block.code
    for name, content in _FILE.findall(rest):
        Path(name).write_text(content, encoding="utf-8")
    rest = _FILE.sub("", rest).replace("\\\n", " ")
    for line in rest.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def run_shell(block: Block, run: Callable[..., str]) -> str:
    """Runs the commands of a block; what they print. `run`: a command of phloem, with its arguments."""
    printed = ""
    for words in shell_lines(block):
        if words[0] == "curl":
            continue
        assert words[0] == "phloem", f"{block.place}: {words[0]} is not known to this test"
        if words[1] in ENDLESS or OF_THE_READER in words:
            read_options(words[1:])
        else:
            printed += run(*words[1:])
    return printed


def read_options(words: list[str]) -> None:
    """Reads the options of a command of phloem as it would, and does not run it; a wrong one raises."""
    command = typer.main.get_command(command_line(words)).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], words[1:])
