// The four kinds of tokens, which of them are coloured, and their legend.

import { count } from "../../format.ts";
import { keep, kept } from "../../storage.ts";
import { Store, useStore } from "../../store.ts";

export type Kind = "cached" | "forced" | "foreseen" | "sampled";

export const KINDS: Record<Kind, string> = {
  cached: "Its keys and values were in the prefix cache, so it was not computed again.",
  forced: "The constraint left only this text, so it needed no step of its own.",
  foreseen: "A draft proposed it, and the model agreed, so it needed no step of its own.",
  sampled: "The model chose it in a step of its own.",
};

const SETTINGS_KEY = "phloem.tokens";

export interface TokenSettings {
  /** Answers are shown as tokens, not as formatted text. */
  isOn: boolean;
  coloured: Record<Kind, boolean>;
}

const FIRST: TokenSettings = { isOn: false, coloured: { cached: true, forced: true, foreseen: true, sampled: true } };

export class TokenSettingsStore extends Store<TokenSettings> {
  constructor() {
    super(stored());
  }

  change(change: Partial<TokenSettings>): void {
    this.set({ ...this.value, ...change });
    keep("local", SETTINGS_KEY, JSON.stringify(this.value));
  }

  toggle(kind: Kind): void {
    this.change({ coloured: { ...this.value.coloured, [kind]: !this.value.coloured[kind] } });
  }
}

function stored(): TokenSettings {
  try {
    const { isOn, coloured } = JSON.parse(kept("local", SETTINGS_KEY) ?? "{}") as Partial<TokenSettings>;
    return { isOn: isOn ?? FIRST.isOn, coloured: { ...FIRST.coloured, ...coloured } };
  } catch {
    return FIRST;
  }
}

/** The class of an element around tokens, for the colours that are on. */
export function colouring({ coloured }: TokenSettings): string {
  return (Object.keys(KINDS) as Kind[])
    .filter((kind) => coloured[kind])
    .join(" show-")
    .replace(/^(?=.)/, "show-");
}

interface LegendProps {
  settings: TokenSettingsStore;
  counts: Partial<Record<Kind, number>>;
  /** What the counts are of, if that is not plain. */
  of: string;
}

/** One button per kind, with how many tokens are of it. */
export function Legend({ settings, counts, of }: LegendProps) {
  const { coloured } = useStore(settings);
  return (
    <fieldset class="kind-legend">
      <legend class="out-of-sight">Colours of tokens</legend>
      {of && <span class="hint">{of}</span>}
      {(Object.keys(counts) as Kind[]).map((kind) => (
        <button
          key={kind}
          type="button"
          class={`legend-kind ${kind}`}
          aria-pressed={coloured[kind]}
          title={KINDS[kind]}
          onClick={() => settings.toggle(kind)}
        >
          <span class="kind-swatch" aria-hidden="true" />
          {kind} <span class="legend-count">{count(counts[kind] ?? 0)}</span>
        </button>
      ))}
    </fieldset>
  );
}
