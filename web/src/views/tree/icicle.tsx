// The icicle's canvas within the page: its size, its theme, its buttons, and a note under the pointer.

import { useEffect, useRef, useState } from "preact/hooks";
import { isDark, prefersLessMotion, theme } from "../../theme.ts";
import { attach } from "./gestures.ts";
import type { Layout } from "./layout.ts";
import type { ColourBy } from "./palette.ts";
import { describePlace } from "./sentences.ts";
import { Stage } from "./stage.ts";

const AGES_EVERY = 2000; // milliseconds between two looks at the ages of an unchanged tree

interface Props {
  layout: Layout;
  takenAt: number;
  colourBy: ColourBy;
  chosen: number;
  /** A place to be shown over the whole width, once for each new object. */
  wanted: { place: number } | null;
  requestKey: string;
  onChoose: (place: number) => void;
}

interface Note {
  text: string;
  x: number;
  y: number;
}

export function Icicle({ layout, takenAt, colourBy, chosen, wanted, requestKey, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const stage = useRef<Stage | null>(null);
  const onChosen = useRef(onChoose);
  onChosen.current = onChoose;
  const [note, setNote] = useState<Note | null>(null);

  useEffect(() => {
    if (!canvas.current) return;
    const made = new Stage(
      canvas.current,
      {
        chosen: (_, place) => onChosen.current(place),
        hovered: (shown, place, x, y) =>
          setNote(place < 0 ? null : { text: describePlace(shown, place, made.elapsed), x, y }),
      },
      prefersLessMotion,
    );
    stage.current = made;
    const detach = attach(made);
    const box = new ResizeObserver(() => {
      made.resize(made.canvas.clientWidth, made.canvas.clientHeight, window.devicePixelRatio);
    });
    box.observe(canvas.current);
    made.resize(canvas.current.clientWidth, canvas.current.clientHeight, window.devicePixelRatio);
    const timer = window.setInterval(() => made.refresh(), AGES_EVERY);
    return () => {
      window.clearInterval(timer);
      box.disconnect();
      detach();
      made.close();
    };
  }, []);
  useEffect(() => stage.current?.show(layout, takenAt), [layout, takenAt]);
  useEffect(() => stage.current?.mark(chosen), [chosen, layout]);
  useEffect(() => {
    if (wanted) stage.current?.enter(wanted.place);
  }, [wanted]);
  useEffect(() => stage.current?.follow(requestKey), [requestKey]);
  useEffect(() => {
    const paint = () => stage.current?.colour(colourBy, isDark());
    paint();
    return theme.watch(paint);
  }, [colourBy]);

  return (
    <div class="icicle">
      {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: the canvas takes keys itself; the table is the other form */}
      <canvas
        ref={canvas}
        class="icicle-canvas"
        tabIndex={0}
        role="application"
        aria-roledescription="icicle chart"
        aria-label="Prefix tree. Arrow keys go to parent, child and siblings; Enter shows a node over the whole width; plus and minus zoom; Escape shows all."
      />
      {note && <HoverNote note={note} width={canvas.current?.clientWidth ?? 0} />}
      <div class="icicle-buttons">
        <button type="button" aria-label="Zoom in" onClick={() => stage.current?.zoom(1 / 1.6)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => stage.current?.zoom(1.6)}>
          −
        </button>
        <button type="button" onClick={() => stage.current?.enter(0)}>
          All
        </button>
      </div>
    </div>
  );
}

/** Beside the pointer, within the canvas. */
function HoverNote({ note, width }: { note: Note; width: number }) {
  const isRight = note.x > width / 2;
  const style = {
    top: `${note.y + 18}px`,
    ...(isRight ? { right: `${width - note.x + 8}px` } : { left: `${note.x + 8}px` }),
  };
  return (
    <div class="hover-note" style={style} aria-hidden="true">
      {note.text}
    </div>
  );
}
