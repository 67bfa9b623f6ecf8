// A picture of the server as elements of the page: only shapes and text, only attributes that place and colour them.
//
// The picture is parsed as XML, which runs nothing, and built anew from an allow-list, so a script, a handler, a style
// sheet, a link or an outside address has no way in, whatever the server sends.

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set([
  "svg",
  "g",
  "path",
  "circle",
  "rect",
  "ellipse",
  "line",
  "polyline",
  "polygon",
  "text",
  "tspan",
  "title",
]);
const ATTRIBUTES = new Set([
  "class",
  "cx",
  "cy",
  "d",
  "dx",
  "dy",
  "fill",
  "fill-opacity",
  "font-family",
  "font-size",
  "font-weight",
  "height",
  "points",
  "r",
  "rx",
  "ry",
  "stroke",
  "stroke-dasharray",
  "stroke-width",
  "text-anchor",
  "textLength",
  "transform",
  "viewBox",
  "width",
  "x",
  "x1",
  "x2",
  "y",
  "y1",
  "y2",
]);
const FORBIDDEN_VALUE = /url\s*\(|javascript:|expression|[<>\\]/i; // a backslash may spell any of these

/** The picture as a new element, or null if it is none. */
export function safeSvg(document: string): SVGSVGElement | null {
  const parsed = new DOMParser().parseFromString(document, "image/svg+xml");
  const root = parsed.documentElement;
  if (root.namespaceURI !== SVG || root.localName !== "svg") return null;
  return copy(root) as SVGSVGElement | null;
}

function copy(source: Element): SVGElement | null {
  if (source.namespaceURI !== SVG || !ELEMENTS.has(source.localName)) return null;
  const made = document.createElementNS(SVG, source.localName) as SVGElement;
  for (const { name, value } of Array.from(source.attributes)) {
    if (ATTRIBUTES.has(name) && !FORBIDDEN_VALUE.test(value)) made.setAttribute(name, value);
  }
  for (const child of Array.from(source.childNodes)) {
    if (child.nodeType === Node.TEXT_NODE) made.append(child.textContent ?? "");
    else if (child instanceof Element) {
      const inner = copy(child);
      if (inner) made.append(inner);
    }
  }
  return made;
}
