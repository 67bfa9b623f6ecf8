"""The official JSON-Schema-Test-Suite, by draft and part: what is decided right, what is refused, what is wrong.

    python bench/studies/json_schema_test_suite.py SUITE [--draft NAME] [--key-order ORDER] [--verbose] [--no-remotes]

SUITE is a checkout of https://github.com/json-schema-org/JSON-Schema-Test-Suite (`tests/` and `remotes/`). The remote
documents are given as `resources`, under the addresses at which the suite serves them. A schema that names no draft
gets that of its folder, but for draft 3, which phloem reads as draft 4. Instances are written by `json.dumps`, compact.

right          valid and taken, or invalid and not taken
refused        the schema does not compile; of these the tests of schemas of which phloem says that nothing is valid
               under them, and where no instance of the suite is, count as `empty`, which is right
false reject   a valid instance that is not taken
false accept   an invalid instance that is taken
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phloem.errors import EmptyLanguage, PhloemError
from phloem.fsm import Compiler, Limits, Vocabulary

SCHEMAS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
SERVED_AT = "http://localhost:1234/"
COLUMNS = ("tests", "right", "empty", "refused", "false reject", "false accept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--draft", default="", choices=["", *SCHEMAS])
    parser.add_argument("--key-order", choices=("schema", "any"), default="any")
    parser.add_argument("--verbose", action="store_true", help="print every test that is not decided right")
    parser.add_argument("--no-remotes", action="store_true", help="without the remote documents")
    options = parser.parse_args()
    compiler = Compiler(
        Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256]), limits=Limits(max_compile_seconds=10)
    )
    resources = {} if options.no_remotes else remotes(options.suite / "remotes")
    totals: dict[str, Counter[str]] = {}
    print("| draft | part | " + " | ".join(COLUMNS) + " |\n|:--|:--|" + "--:|" * len(COLUMNS))
    for draft in [options.draft] if options.draft else SCHEMAS:
        scores: dict[str, Counter[str]] = {}
        for part, name, group in groups(options.suite / "tests" / draft):
            found = score(compiler, group, draft, resources, options.key_order)
            for column, place in found:
                if column not in ("right", "empty") and options.verbose:
                    print(f"{draft} {name}: {group['description']}: {place}: {column}")
                for counter in (scores.setdefault(part, Counter()), totals.setdefault(part, Counter())):
                    counter.update(("tests", column))
        show(draft, scores)
    if not options.draft:
        show("all", totals)


def show(draft: str, scores: dict[str, Counter[str]]) -> None:
    """Prints a row for each part."""
    for part, counter in scores.items():
        print(f"| {draft} | {part} | " + " | ".join(str(counter[column]) for column in COLUMNS) + " |")


def remotes(folder: Path) -> dict[str, Any]:
    """The remote documents by the address at which the suite serves them."""
    paths = sorted(folder.rglob("*.json"))
    found = {path.relative_to(folder).as_posix(): json.loads(path.read_text("utf-8")) for path in paths}
    return {SERVED_AT + name: document for name, document in found.items()}


def groups(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every schema with its tests: part of the suite, name of the file, content."""
    for path in sorted(folder.rglob("*.json")):
        parts = path.relative_to(folder).parts
        part = "format" if "format" in parts[:-1] else "optional" if "optional" in parts[:-1] else "required"
        for group in json.loads(path.read_text("utf-8")):
            yield part, "/".join(parts), group


def score(
    compiler: Compiler, group: dict[str, Any], draft: str, resources: dict[str, Any], key_order: Any
) -> list[tuple[str, str]]:
    """For every test the column it counts in, and which it is."""
    schema, tests = group["schema"], group["tests"]
    if isinstance(schema, dict):
        schema = {"$schema": SCHEMAS[draft], **schema}
    options = {"resources": resources} if resources else {}
    try:
        constraint = compiler.json_schema(schema, key_order=key_order, **options)
    except PhloemError as error:
        is_empty = isinstance(error, EmptyLanguage) and not any(test["valid"] for test in tests)
        return [("empty" if is_empty else "refused", f"{test['description']}: {error}") for test in tests]
    found = []
    for test in tests:
        text = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False)
        is_taken = constraint.accepts(text.encode("utf-8", "surrogatepass"))
        column = "right" if is_taken == test["valid"] else "false accept" if is_taken else "false reject"
        found.append((column, f"{test['description']}: {text[:80]}"))
    return found


if __name__ == "__main__":
    main()
