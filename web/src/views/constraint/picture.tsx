// The automaton: the server's picture, made safe, to zoom and to move by wheel, fingers, keys and buttons.

import { useEffect, useRef, useState } from "preact/hooks";
import { safeSvg } from "./safe_svg.ts";
import { beginning, padded, panned, type ViewBox, zoomed } from "./view_box.ts";

const STEP = 0.12; // of the box, for each arrow key

export function Picture({ svg, label }: { svg: string; label: string }) {
  const home = useRef<HTMLDivElement>(null);
  const whole = useRef<ViewBox>({ x: 0, y: 0, width: 1, height: 1 });
  const [box, setBox] = useState<ViewBox | null>(null);
  const [isBroken, setBroken] = useState(false);

  useEffect(() => {
    const picture = safeSvg(svg);
    setBroken(picture === null);
    if (!picture) return;
    const [x = 0, y = 0, width = 1, height = 1] = (picture.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
    picture.removeAttribute("width");
    picture.removeAttribute("height");
    const paper = home.current;
    if (!paper) return;
    const size = { x, y, width, height };
    whole.current = padded(size, paper.clientWidth / paper.clientHeight);
    setBox(beginning(size, whole.current, paper.clientWidth));
    paper.replaceChildren(picture);
  }, [svg]);
  useEffect(() => {
    const picture = home.current?.firstElementChild;
    if (picture && box) picture.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
  }, [box]);

  const zoom = (factor: number, u?: number, v?: number) =>
    setBox((now) => now && zoomed(now, whole.current, factor, u, v));
  const pan = (right: number, down: number) => setBox((now) => now && panned(now, whole.current, right, down));
  usePointer(home, zoom, pan);

  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, () => void> = {
      ArrowLeft: () => pan(-STEP, 0),
      ArrowRight: () => pan(STEP, 0),
      ArrowUp: () => pan(0, -STEP),
      ArrowDown: () => pan(0, STEP),
      "+": () => zoom(1 / 1.3),
      "=": () => zoom(1 / 1.3),
      "-": () => zoom(1.3),
      "0": () => setBox(whole.current),
    };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      move();
    }
  };
  if (isBroken) return <p class="hint">The picture could not be read.</p>;
  return (
    <div class="picture">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it takes the keys that move the picture */}
      <div ref={home} class="picture-paper" role="img" aria-label={label} tabIndex={0} onKeyDown={onKeyDown} />
      <div class="picture-buttons">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1 / 1.5)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1.5)}>
          −
        </button>
        <button type="button" onClick={() => setBox(whole.current)}>
          All
        </button>
      </div>
    </div>
  );
}

/** Drag moves; the wheel zooms while Ctrl is held or the picture has the focus, so that the page can be scrolled. */
function usePointer(
  home: { current: HTMLDivElement | null },
  zoom: (factor: number, u: number, v: number) => void,
  pan: (right: number, down: number) => void,
): void {
  useEffect(() => {
    const paper = home.current;
    if (!paper) return;
    const abort = new AbortController();
    const { signal } = abort;
    let last: { x: number; y: number } | null = null;
    paper.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && document.activeElement !== paper) return;
        event.preventDefault();
        const area = paper.getBoundingClientRect();
        const factor = Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.002);
        zoom(factor, (event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height);
      },
      { signal, passive: false },
    );
    paper.addEventListener(
      "pointerdown",
      (event) => {
        last = { x: event.clientX, y: event.clientY };
        paper.setPointerCapture(event.pointerId);
      },
      { signal },
    );
    paper.addEventListener(
      "pointermove",
      (event) => {
        if (!last) return;
        const area = paper.getBoundingClientRect();
        pan((last.x - event.clientX) / area.width, (last.y - event.clientY) / area.height);
        last = { x: event.clientX, y: event.clientY };
      },
      { signal },
    );
    const end = () => {
      last = null;
    };
    paper.addEventListener("pointerup", end, { signal });
    paper.addEventListener("pointercancel", end, { signal });
    return () => abort.abort();
  }, []);
}
