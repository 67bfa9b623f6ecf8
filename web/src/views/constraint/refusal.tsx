// Why a constraint was refused: the place, what stands there, and what to do about it.

import type { ApiError } from "../../api.ts";
import { sentence } from "../../format.ts";

export function Refusal({ error }: { error: ApiError }) {
  return (
    <div class="refusal" role="alert">
      <p class="refusal-message">{sentence(error.reason ?? error.message)}</p>
      <dl class="facts">
        {error.pointer !== null && (
          <>
            <dt>Place</dt>
            <dd class="mono">{error.pointer === "" ? "the whole" : error.pointer}</dd>
          </>
        )}
        {error.part && (
          <>
            <dt>There stands</dt>
            <dd>
              <pre>{error.part}</pre>
            </dd>
          </>
        )}
        <dt>Remedy</dt>
        <dd>{sentence(error.remedy)}</dd>
      </dl>
    </div>
  );
}
