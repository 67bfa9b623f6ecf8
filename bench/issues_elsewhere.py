"""Open bugs of other engines, replayed: `docs/issues-elsewhere.md`.

::

    python bench/issues_elsewhere.py --write     # with xgrammar, llguidance, outlines-core and phloem installed

`issues_elsewhere.json` holds, by issue, a schema, a pattern or a grammar, texts that are in it and texts that are not;
what is expected follows from the standard, not from an engine. Each engine compiles it over the 256 bytes as tokens and
is given each text byte by byte; a text counts as accepted if the engine then allows the end token. (One issue is about
an end token that is allowed and not taken: there it has to be taken as well.) An engine whose package is missing is
left out.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "issues-elsewhere.md"
EOS = 256
BYTES = [bytes([byte]) for byte in range(256)]
Accepts = Callable[[bytes, bool], bool]  # (a text, whether the end token has to be taken too)
Compile = Callable[[str, Any], Accepts]  # ("schema" | "regex" | "grammar", what) -> a reader of texts


def phloem() -> Compile:
    import phloem as ph

    compiler = ph.Compiler(ph.Vocabulary([*BYTES, b""], [EOS]))

    def compiled(kind: str, spec: Any) -> Accepts:
        if kind == "schema":
            constraint = compiler.json_schema(spec, whitespace="flexible")
        else:
            constraint = compiler.regex(spec) if kind == "regex" else compiler.grammar(spec)

        def accepts(text: bytes, take_end: bool) -> bool:
            cursor = constraint.cursor()
            return all(map(cursor.advance, text)) and cursor.advance(EOS)

        return accepts

    return compiled


def xgrammar() -> Compile:
    import xgrammar as xgr

    info = xgr.TokenizerInfo([*BYTES, b"<eos>"], vocab_type=xgr.VocabType.RAW, stop_token_ids=[EOS])
    compiler = xgr.GrammarCompiler(info)

    def compiled(kind: str, spec: Any) -> Accepts:
        if kind == "schema":
            grammar = compiler.compile_json_schema(json.dumps(spec))
        else:
            grammar = compiler.compile_regex(spec) if kind == "regex" else compiler.compile_grammar(spec)

        def accepts(text: bytes, take_end: bool) -> bool:
            matcher = xgr.GrammarMatcher(grammar)
            return all(map(matcher.accept_token, text)) and matcher.accept_token(EOS)

        return accepts

    return compiled


def llguidance() -> Compile:
    import llguidance as llg

    tokenizer = llg.LLTokenizer("byte")

    def compiled(kind: str, spec: Any) -> Accepts:
        if kind == "schema":
            grammar = llg.LLMatcher.grammar_from_json_schema(spec)
        else:
            grammar = llg.grammar_from("regex" if kind == "regex" else "grammar", spec)
        if error := llg.LLMatcher(tokenizer, grammar).get_error():
            raise ValueError(error)

        def accepts(text: bytes, take_end: bool) -> bool:
            matcher = llg.LLMatcher(tokenizer, grammar, log_level=0)
            is_end = all(map(matcher.consume_token, text)) and matcher.is_accepting()
            return is_end and (not take_end or matcher.consume_token(tokenizer.eos_token))

        return accepts

    return compiled


def outlines_core() -> Compile:
    from outlines_core import Guide, Index, Vocabulary
    from outlines_core.json_schema import build_regex_from_schema

    vocabulary = Vocabulary(EOS, {spelling: [byte] for byte, spelling in enumerate(BYTES)})

    def compiled(kind: str, spec: Any) -> Accepts:
        if kind == "grammar":
            raise ValueError("no grammars")
        index = Index(build_regex_from_schema(json.dumps(spec)) if kind == "schema" else spec, vocabulary)

        def accepts(text: bytes, take_end: bool) -> bool:
            guide = Guide(index)
            if text and not guide.accepts_tokens([*text]):
                return False
            for byte in text:
                guide.advance(byte)
            return EOS in guide.get_tokens() and (not take_end or guide.accepts_tokens([EOS]))

        return accepts

    return compiled


HEAD = """# Issues elsewhere

Bugs that users of other engines have reported, open ones and closed ones, replayed against the released packages and
phloem by [`bench/issues_elsewhere.py`](../bench/issues_elsewhere.py), which has written this page. *Right*: every text
that is valid is accepted and none that is not; where no text is valid, an error says so. *Refuses*: an error while
compiling, which is honest. *Wrong*: what is said then. Each engine has its defaults. The texts are in
[`issues_elsewhere.json`](../bench/issues_elsewhere.json). An issue may have been reported of an engine that uses one of
these, or of another. They were chosen because users met them, so the counts do not compare the engines as a whole.

"""
TAIL = """## Not replayed

- [Blaizzy/mlx-vlm#1294](https://github.com/Blaizzy/mlx-vlm/issues/1294): a thinking budget that ends within constrained
  text. That is a matter of the server, not of masks: phloem's begins a constraint after the reasoning
  ([Reasoning](server.md#reasoning)).
"""
ENGINES = {"phloem": phloem, "xgrammar": xgrammar, "llguidance": llguidance, "outlines-core": outlines_core}


def verdict(compile_: Compile, case: dict[str, Any]) -> tuple[str, str]:
    """("right" | "refuses" | "wrong", what it says of it)."""
    kind = next(kind for kind in ("schema", "regex", "grammar") if kind in case)
    try:
        accepts = compile_(kind, case[kind])
        take_end = case.get("take_end", False)
        found = {text: accepts(text.encode(), take_end) for text in (*case["valid"], *case["invalid"])}
    except Exception as error:
        said = re.sub(r"^\[[\d:]+\] ", "", f"{error}".strip()).partition("\n")[0]  # xgrammar's begin with the time
        return ("right" if case.get("empty") else "refuses"), said or type(error).__name__
    wrong = [f"accepts {text}" for text in case["invalid"] if found[text]]
    wrong += [f"rejects {text}" for text in case["valid"] if not found[text]]
    if case.get("empty"):
        wrong.append("takes it, though no text is in it")
    return ("wrong", "; ".join(wrong)) if wrong else ("right", "")


def page(cases: list[dict[str, Any]], engines: dict[str, Compile], versions: dict[str, str]) -> str:
    """The whole page, as Markdown."""
    counts = {name: Counter[str]() for name in engines}
    sections = []
    for case in cases:
        owner, _, number = case["issue"].partition("#")
        kind = next(kind for kind in ("schema", "regex", "grammar") if kind in case)
        spec = case[kind] if isinstance(case[kind], str) else json.dumps(case[kind], ensure_ascii=False)
        lines = [
            f"## [{case['issue']}](https://github.com/{owner}/issues/{number}): {case['title']} ({case['state']})",
            "",
        ]
        lines += ["```", spec, "```", ""]
        for name, compile_ in engines.items():
            what, said = verdict(compile_, case)
            counts[name][what] += 1
            lines.append(f"- **{name}**: {what}" + (f": `{shortened(said)}`" if said else ""))
        sections.append("\n".join(lines))
    head = HEAD + "| engine | version | right | refuses | wrong |\n|---|---|---|---|---|\n"
    rows = [
        f"| {name} | {versions[name]} | {count['right']} | {count['refuses']} | {count['wrong']} |"
        for name, count in counts.items()
    ]
    num_open = sum(case["state"] == "open" for case in cases)
    total = f"{len(cases)} replays, {num_open} of them of issues that were open when they were read (November 2026)."
    return "\n".join([head + "\n".join(rows), "", total, "", "\n\n".join(sections), "", TAIL])


def shortened(text: str) -> str:
    text = text.replace("`", "'")
    return text if len(text) <= 160 else text[:157] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/issues-elsewhere.md")
    options = parser.parse_args()
    engines: dict[str, Compile] = {}
    versions = {}
    for name, made in ENGINES.items():
        try:
            engines[name] = made()
        except ImportError as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
            continue
        versions[name] = engine_version(name)
    text = page(json.loads(CASES.read_text(encoding="utf-8")), engines, versions)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def engine_version(name: str) -> str:
    if name != "phloem":
        return version(name)
    import phloem

    return phloem.__version__


if __name__ == "__main__":
    main()
