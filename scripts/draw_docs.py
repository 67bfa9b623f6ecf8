"""Draws the pictures of docs/structured-generation.md into docs/images/: `python scripts/draw_docs.py`.

Each is what `phloem inspect … --svg` draws. `tests/test_docs.py` draws them again and compares.
"""

from __future__ import annotations

from pathlib import Path

import phloem as ph

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"

SHIRT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "size": {"enum": ["S", "M", "XL"]},
        "stock": {"type": "integer", "minimum": 0},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}
TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"label": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["label"],
            "additionalProperties": False,
        }
    },
}
TOOL = {
    "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}],
    "triggers": ["<f>"],
}

PICTURES: dict[str, ph.ConstraintSpec] = {
    "date.svg": ph.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "colours.svg": ph.choice(["red", "green", "grey", "blue", "black"]),
    "shirt.svg": ph.json_schema(SHIRT),
    "tree.svg": ph.json_schema(TREE),
    "tool.svg": ph.structural_tag(TOOL),
}


def draw(name: str) -> str:
    """One picture as an SVG document."""
    return ph.explain(PICTURES[name]).svg().document


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in PICTURES:
        (IMAGES / name).write_text(draw(name), encoding="utf-8")
        print(f"docs/images/{name}")


if __name__ == "__main__":
    main()
