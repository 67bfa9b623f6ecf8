// Wheel, pointer, fingers and keys on the icicle, as calls of the stage.
//
// Wheel: zoom about the pointer (with Shift, or sideways: pan). Drag: pan. Two fingers: zoom. Click: choose; click on
// what is chosen: enter it. Keys: see `onKey`. `attach` returns what undoes it.

import type { Stage } from "./stage.ts";

const CLICK_SLOP = 5; // pixels

export function attach(stage: Stage): () => void {
  const { canvas } = stage;
  const fingers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  let spread = 0;

  const at = (event: MouseEvent) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
  };

  const onWheel = (event: WheelEvent) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const { x, width } = at(event);
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      stage.pan((event.deltaX || event.deltaY) * unit, 0);
    } else stage.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * unit)) * 0.0025), x / width);
  };

  const onDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    moved = fingers.size > 1 ? CLICK_SLOP + 1 : 0;
    spread = distance(fingers);
  };

  const onMove = (event: PointerEvent) => {
    const now = at(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch") stage.hover(now.x, now.y);
      return;
    }
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    fingers.set(event.pointerId, now);
    if (fingers.size === 2) {
      const wider = distance(fingers);
      if (wider > 0 && spread > 0) stage.zoom(spread / wider, middle(fingers) / now.width);
      spread = wider;
    } else if (moved > CLICK_SLOP) stage.pan(before.x - now.x, event.pointerType === "touch" ? 0 : before.y - now.y);
  };

  const onUp = (event: PointerEvent) => {
    if (!fingers.delete(event.pointerId)) return;
    spread = distance(fingers);
    if (moved > CLICK_SLOP || event.type === "pointercancel") return;
    const { x, y } = at(event);
    const place = stage.placeUnder(x, y);
    if (place < 0) return;
    if (place === stage.chosen) stage.enter(place);
    else stage.choose(place, false);
  };

  const onLeave = () => stage.unhover();
  const onKeyDown = (event: KeyboardEvent) => {
    if (onKey(stage, event)) event.preventDefault();
  };

  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", onLeave);
  canvas.addEventListener("keydown", onKeyDown);
  return () => {
    canvas.removeEventListener("wheel", onWheel);
    canvas.removeEventListener("pointerdown", onDown);
    canvas.removeEventListener("pointermove", onMove);
    canvas.removeEventListener("pointerup", onUp);
    canvas.removeEventListener("pointercancel", onUp);
    canvas.removeEventListener("pointerleave", onLeave);
    canvas.removeEventListener("keydown", onKeyDown);
  };
}

/** True if the key meant something here. */
export function onKey(stage: Stage, event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  switch (event.key) {
    case "ArrowUp":
      stage.go("parent");
      return true;
    case "ArrowDown":
      stage.go("child");
      return true;
    case "ArrowLeft":
      stage.go("previous");
      return true;
    case "ArrowRight":
      stage.go("next");
      return true;
    case "Home":
      stage.go("first");
      return true;
    case "End":
      stage.go("last");
      return true;
    case "Enter":
    case " ":
      stage.enter(stage.chosen);
      return true;
    case "+":
    case "=":
      stage.zoom(1 / 1.5);
      return true;
    case "-":
      stage.zoom(1.5);
      return true;
    case "0":
    case "Escape":
      stage.enter(0);
      return true;
    default:
      return false;
  }
}

function distance(fingers: Map<number, { x: number; y: number }>): number {
  const [a, b] = [...fingers.values()];
  return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
}

function middle(fingers: Map<number, { x: number; y: number }>): number {
  const [a, b] = [...fingers.values()];
  return a && b ? (a.x + b.x) / 2 : 0;
}
