// Light or dark: the reader's choice, or the system's; and colours for canvases.

import { keep, kept } from "./storage.ts";
import { Store } from "./store.ts";

export type Theme = "auto" | "light" | "dark";

const KEY = "phloem.theme";

export const theme = new Store<Theme>("auto");

export function setTheme(choice: Theme): void {
  keep("local", KEY, choice);
  document.documentElement.dataset.theme = choice;
  theme.set(choice);
}

/** Applies the stored choice; tells the store's watchers when the system's changes. */
export function startTheme(): void {
  const stored = kept("local", KEY);
  setTheme(stored === "light" || stored === "dark" ? stored : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.tell());
}

/** The custom property `name` ("--accent") as a colour that canvases take, in the theme of now. */
export function colourOf(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

export function prefersLessMotion(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** Whether the page is dark now. */
export function isDark(): boolean {
  return theme.value === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme.value === "dark";
}

/** True where a finger is the main pointer, so that Enter means a new line and no keyboard is opened unasked. */
export function prefersTouch(): boolean {
  return matchMedia("(pointer: coarse)").matches;
}
