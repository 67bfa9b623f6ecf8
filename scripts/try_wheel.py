"""Tries an installed phloem, away from the checkout: imports, a first mask, and, where torch is, an answer.

cd / && python /path/to/scripts/try_wheel.py
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import phloem
import phloem._core
from phloem.fsm import Compiler, Vocabulary

CHECKOUT = Path(__file__).resolve().parent.parent


def main() -> None:
    installed = Path(phloem.__file__).resolve()
    if installed.is_relative_to(CHECKOUT):
        sys.exit(f"{installed} is the checkout's, not an installed wheel's")
    tokens = [bytes([byte]) for byte in range(256)] + [b"</s>"]
    constraint = Compiler(Vocabulary(tokens, (256,))).json_schema({"type": "boolean"})
    row = constraint.cursor().row()
    allowed = bytes(token for token in range(256) if row[token // 32] >> token % 32 & 1)
    if allowed != b"ft":
        sys.exit(f"a boolean may begin with {allowed!r}")
    answer = "not asked for, without torch"
    if importlib.util.find_spec("torch"):
        with phloem.Engine(device="cpu", num_blocks=64) as engine:
            answer = engine.generate("Hello", phloem.SamplingParams(max_tokens=4), phloem.regex("ab")).text
        if answer != "ab":
            sys.exit(f"the model answered {answer!r} to a constraint that allows 'ab' alone")
    print(f"phloem {phloem.__version__}, Python {sys.version.split()[0]}: imports, mask {allowed!r}, answer {answer!r}")


if __name__ == "__main__":
    main()
