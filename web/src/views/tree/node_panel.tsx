// One node in detail: its text (with admin rights), what holds it, and whether it would be evicted next.

import { useEffect, useState } from "preact/hooks";
import { type Api, type ApiError, asApiError, isAborted } from "../../api.ts";
import type { About, TreeNode } from "../../contract.ts";
import { count, counted, duration } from "../../format.ts";
import { idAt, type Layout } from "./layout.ts";
import { children } from "./sentences.ts";

const WAIT = 120; // milliseconds, so that walking with arrow keys asks only where it stops
const AGAIN = 2000;

interface Props {
  api: Api;
  about: About;
  layout: Layout;
  place: number;
  onChoose: (place: number) => void;
  onRequest: (key: string) => void;
}

export function NodePanel({ api, about, layout, place, onChoose, onRequest }: Props) {
  const id = idAt(layout, place);
  const { node, error } = useNode(api, id);
  if (id < 0) {
    return (
      <section class="card node-panel" aria-label="Chosen node">
        <h2>Whole cache</h2>
        <p class="hint">
          Each bar is a run of tokens that some prompts share up to there. Choose one to see what it holds, what holds
          it, and whether it would be evicted next.
        </p>
      </section>
    );
  }
  return (
    <section class="card node-panel" aria-label="Chosen node">
      <div class="panel-head">
        <h2>Node {id}</h2>
        <button type="button" class="quiet" onClick={() => onChoose(place)}>
          Fill the width
        </button>
      </div>
      {error?.status === 404 && <p>This node has been evicted or changed; its parent is still there.</p>}
      {error && error.status !== 404 && <p role="alert">{`${error.message} ${error.remedy}`}</p>}
      {node && (
        <>
          <p class="panel-sentence">{node.sentence}</p>
          <Facts node={node} isAlone={layout.tree.header.namespaces.length < 2} />
          <Holders node={node} onRequest={onRequest} />
          <Text node={node} isAdmin={about.admin} hasText={about.has_text} />
        </>
      )}
    </section>
  );
}

function Facts({ node, isAlone }: { node: TreeNode; isAlone: boolean }) {
  return (
    <dl class="facts">
      <dt>Size</dt>
      <dd>
        {counted(node.num_blocks, "block")}, {counted(node.num_tokens, "token")}
      </dd>
      <dt>Continued by</dt>
      <dd>{children(node.children)}</dd>
      <dt>Last used</dt>
      <dd>{duration(node.age_seconds * 1000)} ago</dd>
      <dt>Hits</dt>
      <dd>{count(node.hits)}</dd>
      {!isAlone && (
        <>
          <dt>Namespace</dt>
          <dd>{node.namespace}</dd>
        </>
      )}
      {node.pinned_seconds !== null && (
        <>
          <dt>Pinned</dt>
          <dd>for {duration(node.pinned_seconds * 1000)} more</dd>
        </>
      )}
      <dt>Eviction</dt>
      <dd>
        {node.rank === null ? "not a candidate" : node.rank === 0 ? "next" : `after ${counted(node.rank, "other")}`}
      </dd>
    </dl>
  );
}

function Holders({ node, onRequest }: { node: TreeNode; onRequest: (key: string) => void }) {
  if (node.held_by.length === 0) return null;
  return (
    <div class="holders">
      <h3>Held by</h3>
      <ul>
        {node.held_by.slice(0, 20).map((name) => (
          <li key={name}>
            <button type="button" class="mono" onClick={() => onRequest(name)}>
              {name}
            </button>
          </li>
        ))}
        {node.held_by.length > 20 && <li class="hint">{node.held_by.length - 20} more</li>}
      </ul>
    </div>
  );
}

function Text({ node, isAdmin, hasText }: { node: TreeNode; isAdmin: boolean; hasText: boolean }) {
  if (node.text === null) {
    if (isAdmin || !hasText) return null;
    return (
      <p class="hint">
        Its text may be private, so it is shown with admin rights only: start the server with{" "}
        <code>--enable-admin</code>.
      </p>
    );
  }
  return (
    <div>
      <h3 id="node-text">Text</h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard has to reach it */}
      <section class="node-text" aria-labelledby="node-text" tabIndex={0}>
        {node.text}
      </section>
    </div>
  );
}

/** What the server says of a node, asked again while it is shown. */
function useNode(api: Api, id: number) {
  const [found, setFound] = useState<{ node: TreeNode | null; error: ApiError | null }>({ node: null, error: null });
  useEffect(() => {
    if (id < 0) return;
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        setFound({ node: await api.treeNode(id, abort.signal), error: null });
        timer = window.setTimeout(ask, AGAIN);
      } catch (error) {
        if (!isAborted(error))
          setFound(({ node }) => ({ node: node?.id === id ? node : null, error: asApiError(error) }));
      }
    };
    timer = window.setTimeout(ask, WAIT);
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [api, id]);
  return found.node && found.node.id !== id ? { node: null, error: null } : found;
}
