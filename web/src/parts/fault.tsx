// An error and its remedy.

import type { Problem } from "../api.ts";
import { sentence } from "../format.ts";

/** Whether the place of a fault is known and its message does not name it. */
export function isPlaceMissing({ message, pointer }: Problem): boolean {
  return pointer !== null && !(pointer && message.includes(pointer));
}

export function Fault({ error, onRetry }: { error: Problem; onRetry?: () => void }) {
  return (
    <div class="fault" role="alert">
      <p class="fault-message">
        {sentence(error.message)}
        {isPlaceMissing(error) && (
          <>
            {" "}
            At <code>{error.pointer || "/"}</code>.
          </>
        )}
      </p>
      {error.remedy && <p class="fault-remedy">{error.remedy}</p>}
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
