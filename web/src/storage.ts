// What this browser keeps. A browser that keeps nothing, or is full, is no fault of the page.

type Kind = "local" | "session";

function storage(kind: Kind): Storage | null {
  try {
    return kind === "local" ? localStorage : sessionStorage;
  } catch {
    return null;
  }
}

export function kept(kind: Kind, key: string): string | null {
  return storage(kind)?.getItem(key) ?? null;
}

/** All keys that begin with `prefix`. */
export function keptKeys(kind: Kind, prefix: string): string[] {
  return Object.keys(storage(kind) ?? {}).filter((key) => key.startsWith(prefix));
}

/** Keeps `value`, or forgets the key for null. False if the browser does not take it. */
export function keep(kind: Kind, key: string, value: string | null): boolean {
  try {
    if (value === null) {
      storage(kind)?.removeItem(key);
    } else {
      storage(kind)?.setItem(key, value);
    }
    return storage(kind) !== null;
  } catch {
    return false;
  }
}
