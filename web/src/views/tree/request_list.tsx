// The requests that are running or waiting, beside the tree; the chosen one is highlighted along its path.

import type { TreeRequest } from "../../contract.ts";
import { keyOf } from "./markers.ts";
import { describeProgress } from "./sentences.ts";

const MAX_SHOWN = 60;
const ORDER = { decode: 0, prefill: 1, waiting: 2 };

interface Props {
  requests: TreeRequest[];
  chosen: string;
  onChoose: (key: string) => void;
}

export function RequestList({ requests, chosen, onChoose }: Props) {
  const sorted = [...requests].sort((a, b) => ORDER[a.phase] - ORDER[b.phase]);
  return (
    <section class="card request-list" aria-label="Requests in the tree">
      <h2>
        Requests <span class="hint">{requests.length}</span>
      </h2>
      {requests.length === 0 && (
        <p class="hint">None is running. A request that begins appears here and in the tree.</p>
      )}
      <ul>
        {sorted.slice(0, MAX_SHOWN).map((request) => {
          const key = keyOf(request);
          return (
            <li key={key}>
              <button
                type="button"
                class="row"
                aria-pressed={key === chosen}
                onClick={() => onChoose(key === chosen ? "" : key)}
              >
                <span class={`mark-${request.phase}`} />
                <span class="row-name mono">{key}</span>
                <span class="row-phase">{request.phase}</span>
                <span class="row-note hint">
                  {describeProgress(request)}
                  {request.node < 0 && request.phase !== "waiting" ? "; nothing of it is in the tree yet" : ""}
                </span>
                <Progress request={request} />
              </button>
            </li>
          );
        })}
      </ul>
      {sorted.length > MAX_SHOWN && <p class="hint">… {sorted.length - MAX_SHOWN} more</p>}
    </section>
  );
}

/** How much of the prompt is computed. */
function Progress({ request }: { request: TreeRequest }) {
  if (request.phase !== "prefill") return null;
  return <progress max={request.num_prompt_tokens} value={request.num_computed_tokens} aria-label="Prompt computed" />;
}
