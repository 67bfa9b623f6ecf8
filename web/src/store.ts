// A value that views watch.

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private readonly watchers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    if (value !== this.current) {
      this.current = value;
      this.tell();
    }
  }

  /** Tells the watchers of a change within the value. */
  tell(): void {
    for (const watcher of this.watchers) {
      watcher();
    }
  }

  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The value of `store`; the component is drawn again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, draw] = useState({});
  useEffect(() => {
    draw({});
    return store.watch(() => draw({}));
  }, [store]);
  return store.value;
}
