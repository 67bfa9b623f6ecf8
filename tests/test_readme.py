"""The README's Python blocks run, in order, as a newcomer would type them; its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import phloem as ph

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile("\n".join(blocks), str(ROOT / "README.md"), "exec", dont_inherit=True), names)
    engine = names["engine"]
    assert isinstance(engine, ph.Engine)
    person = names["answer"].parsed  # type: ignore[attr-defined]
    assert f"# {person!r}\n" in README, "what it says next to `answer.parsed`"
    answer = names["answer"]
    assert answer.text == person.model_dump_json(), "and nothing else was made up"  # type: ignore[attr-defined]
    assert names["state"]["better"] in ("first", "second")  # type: ignore[index]
    engine.close()


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert all((ROOT / link).exists() for link in links if not link.startswith("http"))
