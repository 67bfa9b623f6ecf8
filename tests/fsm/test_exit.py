"""A process ends with its own exit status while daemon threads are at work in the core."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading, time
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.compiler import Limits

vocabulary = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], [0])
compiler = Compiler(vocabulary, limits=Limits(max_compile_seconds=None))
begun = threading.Semaphore(0)

def walk():
    while True:
        cursor = compiler.grammar('root ::= "a" root "b" | root root | "c"').cursor()
        compiler.clear()
        begun.release()
        for _ in range(60):
            cursor.advance(98)

def build():
    while True:
        begun.release()
        compiler.regex("(a|b)*a(a|b){12}")
        compiler.clear()

for _ in range(3):
    threading.Thread(target=globals()[sys.argv[1]], daemon=True).start()
    begun.acquire()
"""


@pytest.mark.parametrize("work", ["walk", "build"])
def test_a_daemon_thread_does_not_abort_the_process(work: str) -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", SCRIPT, work], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
