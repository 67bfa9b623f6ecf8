"""What commands do about garbage. In processes of their own, since collections are switched for a whole process."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import gc
from phloem.runtime.engine.gc_tuning import settle

class Node: pass
before = gc.get_threshold()
settle()
assert gc.get_freeze_count() > 1_000
after = gc.get_threshold()
assert after[0] >= before[0] and after[0] * after[1] * after[2] > before[0] * before[1] * before[2]
assert gc.isenabled()
node = Node()
node.itself = node
del node
assert gc.collect() >= 1
"""


def test_what_was_loaded_is_out_of_sight_and_later_circles_are_still_found() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True)


COMMAND = """
import atexit, gc
from phloem.runtime.cli import main

collections = []

def note(phase, _):
    if phase == "start":
        collections.append(gc.get_freeze_count() == 0)

gc.callbacks.append(note)
atexit.register(lambda: print(gc.isenabled(), any(collections), gc.get_freeze_count() > 100_000))
main(["generate", "hello", "--model", "nano", "--max-tokens", "2"])
"""


def test_a_command_collects_nothing_while_it_loads_and_at_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", COMMAND], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "True False True"  # collections are on again; none before; all is kept out


def test_a_program_that_runs_commands_itself_keeps_its_own_collections() -> None:
    code = "import gc; from phloem.runtime.cli import run; code = run(['generate', 'a', '--max-tokens', '1'])"
    code += "; assert (code, gc.isenabled(), gc.get_freeze_count()) == (0, True, 0)"
    subprocess.run([sys.executable, "-c", code], check=True)
