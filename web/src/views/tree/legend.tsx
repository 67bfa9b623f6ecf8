// What the icicle's colours and marks mean.

import { useStore } from "../../store.ts";
import { isDark, theme } from "../../theme.ts";
import { type ColourBy, legend, swatches } from "./palette.ts";

const TITLES: Record<ColourBy, string> = { age: "Last used", hits: "Hits", namespace: "Namespace" };

interface LegendProps {
  colourBy: ColourBy;
  namespaces: string[];
  /** Whether the text of a chosen node is shown. */
  showsText: boolean;
}

export function LegendBar({ colourBy, namespaces, showsText }: LegendProps) {
  useStore(theme);
  return (
    <div class="legend">
      <ul class="legend-group" aria-label={`Colours: ${TITLES[colourBy]}`}>
        <li class="legend-title">{TITLES[colourBy]}</li>
        {legend(swatches(colourBy, namespaces, isDark())).map(({ colour, label }) => (
          <li key={label}>
            <span class="swatch" style={{ backgroundColor: colour }} />
            {label}
          </li>
        ))}
      </ul>
      <ul class="legend-group" aria-label="Marks">
        <li>
          <span class="swatch mark-lease" />
          leased
        </li>
        <li>
          <span class="swatch mark-pin" />
          pinned
        </li>
        <li>
          <span class="mark-prefill" />
          request, prefill
        </li>
        <li>
          <span class="mark-decode" />
          request, decode
        </li>
      </ul>
      <p class="hint">
        Width: blocks of a bar and all below it; number: its own. Wheel or pinch zooms, drag moves, a click chooses, a
        second click fills the width.{!showsText && " Servers with --enable-admin show the text of a chosen bar."}
      </p>
    </div>
  );
}
