// An error and its remedy.

import type { Problem } from "../api.ts";

export function Fault({ error, onRetry }: { error: Problem; onRetry?: () => void }) {
  return (
    <div class="fault" role="alert">
      <p class="fault-message">
        {error.message}
        {error.pointer !== null && (
          <>
            {" "}
            At <code>{error.pointer || "/"}</code>.
          </>
        )}
      </p>
      <p class="fault-remedy">{error.remedy}</p>
      {onRetry && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}
