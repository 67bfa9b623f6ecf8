// The path from the whole cache to the chosen node: each step fills the width of the icicle.

import { count } from "../../format.ts";
import { idAt, type Layout, pathTo } from "./layout.ts";

const MAX_STEPS = 7;

export function PathBar({ layout, place, onEnter }: { layout: Layout; place: number; onEnter: (at: number) => void }) {
  const path = pathTo(layout, place);
  const shown = path.length > MAX_STEPS ? [0, ...path.slice(1 - MAX_STEPS)] : path;
  return (
    <nav class="path-bar" aria-label="Path to the chosen node">
      <ol>
        {shown.map((at, i) => (
          <li key={at}>
            {i === 1 && shown.length < path.length && <span class="path-gap">… {path.length - shown.length} more</span>}
            <button
              type="button"
              class="quiet"
              aria-current={at === place ? "true" : undefined}
              onClick={() => onEnter(at)}
            >
              {at === 0 ? "Whole cache" : `Node ${idAt(layout, at)}`}
              <span class="path-size">{count(layout.width[at]!)}</span>
            </button>
          </li>
        ))}
      </ol>
    </nav>
  );
}
