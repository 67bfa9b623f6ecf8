"""What a server does about garbage at its start. In a process of its own, since that is whose garbage it is."""

from __future__ import annotations

import subprocess
import sys

CHECK = """
import gc
from phloem.runtime.garbage import settle

class Node: pass
before = gc.get_threshold()
settle()
assert gc.get_freeze_count() > 1_000
assert gc.get_threshold()[0] >= before[0] and gc.get_threshold()[1] > before[1]
assert gc.isenabled()
node = Node()
node.itself = node
del node
assert gc.collect() >= 1
"""


def test_what_was_loaded_is_out_of_sight_and_later_circles_are_still_found() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True)
