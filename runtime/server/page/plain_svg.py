"""A picture of `fsm.look` without a style sheet: every element has its looks as attributes.

The page's policy allows no inline styles, so `<style>` and `class` become what they mean on a light background; the
page may colour the classes, which stay, by its own style sheet. Knows the classes of `fsm/look/svg.py`.
"""

from __future__ import annotations

import re

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
LOOKS: dict[str, dict[str, str]] = {
    "text": {"font-family": FONT, "font-size": "12", "fill": "#65717e"},
    "text.title": {"font-weight": "bold", "fill": "#1f6fb2"},
    "text.note": {"fill": "#737f8b"},
    "text.state": {"text-anchor": "middle", "fill": "#737f8b", "font-size": "11"},
    "text.label": {"text-anchor": "middle", "xml:space": "preserve"},
    "text.upright": {"text-anchor": "start"},
    "text.call": {"fill": "#a3510b"},
    "text.text": {"fill": "#7a3fa0"},
    "text.forced": {"fill": "#128a57"},
    "circle": {"fill": "#8a94a0", "fill-opacity": ".1", "stroke": "#6b7680", "stroke-width": "1.4"},
    "circle.ring": {"fill": "none"},
    "circle.open": {"stroke-dasharray": "3 3"},
    "path.edge": {"fill": "none", "stroke": "#8a94a0", "stroke-width": "1.3"},
    "path.head": {"fill": "#8a94a0"},
}
STYLE = re.compile(r"<style\b.*?</style>\s*", re.DOTALL)
ELEMENT = re.compile(r'<(text|circle|path)((?: [\w:-]+="[^"]*")*)')
CLASS = re.compile(r' class="([^"]*)"')


def plain_svg(document: str) -> str:
    """The same picture without `<style>`; one that has none is left as it is."""
    if "<style" not in document:
        return document
    return ELEMENT.sub(_with_looks, STYLE.sub("", document, count=1))


def _with_looks(element: re.Match[str]) -> str:
    name, attributes = element.groups()
    found = CLASS.search(attributes)
    looks = dict(LOOKS.get(name, {}))
    for one in found[1].split() if found is not None else ():
        looks |= LOOKS.get(f"{name}.{one}", {})
    given = {attribute for attribute, _ in re.findall(r'([\w:-]+)="([^"]*)"', attributes)}
    added = "".join(f' {key}="{value}"' for key, value in looks.items() if key not in given)
    return f"<{name}{attributes}{added}"
