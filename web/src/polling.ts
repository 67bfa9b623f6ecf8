// Asking the server again and again while a view is shown.

import { useEffect, useState } from "preact/hooks";
import { type ApiError, asApiError, isAborted } from "./api.ts";

export interface Polled<T> {
  value: T | null;
  error: ApiError | null;
}

/**
 * What `ask` answers, asked again `milliseconds` after each answer, while the page is visible and `isOn`.
 * The last value stays beside an error. `null` from `ask` means that nothing has changed.
 */
export function usePolling<T>(
  ask: (signal: AbortSignal) => Promise<T | null>,
  milliseconds: number,
  isOn = true,
): Polled<T> {
  const [polled, setPolled] = useState<Polled<T>>({ value: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const round = async () => {
      if (!document.hidden) {
        try {
          const value = await ask(abort.signal);
          setPolled((before) =>
            value === null && !before.error ? before : { value: value ?? before.value, error: null },
          );
        } catch (error) {
          if (isAborted(error) || abort.signal.aborted) {
            return;
          }
          setPolled((before) => ({ value: before.value, error: asApiError(error) }));
        }
      }
      if (!abort.signal.aborted) {
        timer = window.setTimeout(round, milliseconds);
      }
    };
    if (isOn) {
      round();
    }
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [ask, milliseconds, isOn]);
  return polled;
}
