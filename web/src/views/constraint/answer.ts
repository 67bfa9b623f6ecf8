// The server's answer on what is typed: asked a moment after the last key; an older question is taken back.

import { useEffect, useState } from "preact/hooks";
import { type Api, type ApiError, asApiError, isAborted } from "../../api.ts";
import type { ConstraintAnswer, ConstraintQuestion } from "../../contract.ts";

const WAIT = 220; // milliseconds after the last key
const BUSY_WAIT = 1000; // and between two tries while the server looks at those of others

export interface Answered {
  /** What the answer or the error is about; the field may have gone on since. */
  question: ConstraintQuestion | null;
  /** The last good answer; it stays beside an error of the text or of the connection. */
  answer: ConstraintAnswer | null;
  error: ApiError | null;
  isAsking: boolean;
}

export function useAnswer(api: Api, question: ConstraintQuestion | null): Answered {
  const [answered, setAnswered] = useState<Answered>({ question: null, answer: null, error: null, isAsking: false });
  const asked = JSON.stringify(question);
  useEffect(() => {
    const wanted = JSON.parse(asked) as ConstraintQuestion | null;
    if (!wanted) {
      setAnswered({ question: null, answer: null, error: null, isAsking: false });
      return;
    }
    const abort = new AbortController();
    const timer = window.setTimeout(async () => {
      const isSame = (before: Answered) => String(before.question?.source) === String(wanted.source);
      setAnswered((before) => ({ ...before, error: isSame(before) ? before.error : null, isAsking: true }));
      while (!abort.signal.aborted) {
        try {
          const answer = await api.constraint(wanted, abort.signal);
          setAnswered({ question: wanted, answer, error: null, isAsking: false });
          return;
        } catch (reason) {
          if (isAborted(reason) || abort.signal.aborted) return;
          const error = asApiError(reason);
          setAnswered((before) => ({
            ...before,
            question: wanted,
            answer: null,
            error,
            isAsking: error.status === 429,
          }));
          if (error.status !== 429) return;
          await new Promise((resolve) => window.setTimeout(resolve, BUSY_WAIT));
        }
      }
    }, WAIT);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [api, asked]);
  return answered;
}
