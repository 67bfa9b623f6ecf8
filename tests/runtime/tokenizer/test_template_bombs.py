"""Templates that cost far more than they look: each is refused in a child with little memory and time."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

# one child, which forks for each template: importing takes longer than refusing
CHILD = """
import json, os, resource, sys
from phloem.errors import PhloemError
from phloem.runtime.tokenizer.chat_template import ChatTemplate
for source in json.load(sys.stdin):
    read, write = os.pipe()
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (10, 11))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
        told = "rendered"
        try:
            template = ChatTemplate(source, "t", token_texts={}, special_texts=["<s>"])
            template.render([{"role": "user", "content": "hi"}])
        except PhloemError as error:
            told = str(error)
        os.write(write, told.encode()[:2000])
        os._exit(0)
    os.close(write)
    print(json.dumps(os.fdopen(read).read() or "it was killed"), flush=True)
    os.wait()
"""
LISTS = "{% set a = [('ab ' * 9999).split()] %}{% set b = [('ab ' * 9999).split()] %}{% for i in range(99999) %}"
TEXT = "{% set a = 'A ' * 500000 %}{% for i in range(99999) %}"
END = "{% endfor %}"
BOMBS = {
    "a width in bytes": ("{{ '%1500000000d'.encode() % 1 }}", "encode"),
    "bytes of a number": ("{{ (1).to_bytes(3000000000, 'big') }}", "to_bytes"),
    "a number of bytes": ("{{ (1).from_bytes(messages, 'big') }}", "from_bytes"),
    "text for letters": ("{{ 'x'.translate({120: 'y'}) }}", "translate"),
    "a width in markup": ("{% set m = '{0:{1}}' | safe %}{{ m.format(1, 1500000000) }}", "width"),
    "padded markup": ("{% set m = 'x' | e %}{{ m.center(1500000000) }}", "center"),
    "a long date": ("{{ strftime_now('%Y' * 2000000) }}", "date"),
    "a wide date": ("{{ strftime_now('%255Y') }}", "date"),
    "digits rounded up": ("{{ 1 | round(25000000, 'ceil') }}", "rounds"),
    "digits rounded off": ("{{ 7 | round(-25000000) }}", "rounds"),
    "a test of letters": (TEXT + "{% if a is upper %}{% endif %}" + END, "characters"),
    "words": (TEXT + "{% set z = a | wordcount %}" + END, "characters"),
    "titles": (TEXT + "{% set z = a | title %}" + END, "characters"),
    "a comparison": (LISTS + "{% if a == b %}{% endif %}" + END, "too large|characters"),
    "a test of lists": (LISTS + "{% if a is eq(b) %}{% endif %}" + END, "too large|characters"),
    "a list in a list": (LISTS + "{% if b in [a] %}{% endif %}" + END, "too large|characters"),
    "a count": (LISTS + "{% set z = a.count(b[0]) %}" + END, "too large|characters"),
    "wide numbers": ("{% set n = 2 ** 200 %}{{ n * n }}", "bits|TooMuchWork"),
    "a long sum": ("{{ " + "1+" * 100000 + "1 }}", r"line 1\)"),
    "long text of sums": ("{{ " + "1~" * 100000 + "1 }}", r"line 1\)"),
    "many loops": ("\n{% for a in b %}{% endfor %}" * 5000, r"line \d+\)"),
    "a long template": ("x" * (1 << 21), r"line 1\)"),
    "a refund": ("{{ (0 - 999999) | _phloem_turn }}", "_phloem"),
    "backwards": ("{{ messages[0].content[::-1] }}", "a step"),
    "backwards by a filter": ("{{ messages[0].content | reverse }}", "reverse"),
    "code points": ("{{ '%c' % 60 }}", "%c"),
    "code points in a format": ("{{ '{:c}'.format(60) }}", ":c"),
}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    sources = json.dumps([source for source, _ in BOMBS.values()])
    child = subprocess.run([sys.executable, "-c", CHILD], input=sources, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    return dict(zip(BOMBS, map(json.loads, child.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_is_refused(case: str, told: dict[str, str]) -> None:
    assert re.search(BOMBS[case][1], told[case]), told[case]
