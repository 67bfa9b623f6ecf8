// Numbers and durations as readers see them.

const WHOLE = new Intl.NumberFormat("en");

/** 12345 → "12,345". */
export function count(value: number): string {
  return WHOLE.format(value);
}

/** "1 token", "2 tokens". */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Milliseconds → "840 µs", "4.2 ms", "380 ms", "2.1 s", "3 min"; null → "–". */
export function duration(milliseconds: number | null): string {
  if (milliseconds === null) {
    return "–";
  }
  if (milliseconds === 0) {
    return "0 ms";
  }
  if (milliseconds < 1) {
    return `${Math.round(milliseconds * 1000)} µs`;
  }
  if (milliseconds < 1000) {
    return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
  }
  if (milliseconds < 120_000) {
    return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
  }
  return `${Math.round(milliseconds / 60_000)} min`;
}

/** The same, with the seconds of what takes minutes: "3 min 20 s". */
export function exactDuration(milliseconds: number): string {
  const seconds = Math.round(milliseconds / 1000);
  if (seconds < 120 || seconds >= 3600) {
    return duration(milliseconds);
  }
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** 0.4237 → "42 %". */
export function percent(fraction: number): string {
  const value = fraction * 100;
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} %`;
}

/** Bytes → "1.5 GiB". */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

/** `text` with a full stop at its end. */
export function sentence(text: string): string {
  return /[.!?…:)]$/.test(text) ? text : `${text}.`;
}
