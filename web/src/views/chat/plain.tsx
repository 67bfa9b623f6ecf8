// Completions of plain text, for a model without a chat template.

import { useRef, useState } from "preact/hooks";
import { type Api, asApiError, isAborted, type Problem, problemOf } from "../../api.ts";
import type { About } from "../../contract.ts";
import { Fault } from "../../parts/fault.tsx";
import { addChunk, type Chunk } from "./chunks.ts";
import { newReply, type Reply } from "./conversation.ts";
import { Measures } from "./measures.tsx";

const DEFAULT_TOKENS = 64;

export function Plain({ api, about }: { api: Api; about: About }) {
  const [text, setText] = useState("");
  const [maxTokens, setMaxTokens] = useState(String(DEFAULT_TOKENS));
  const [reply, setReply] = useState<Reply | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const abort = useRef<AbortController | null>(null);
  const isStreaming = reply?.state === "streaming";

  const complete = async () => {
    const next: Reply = { ...newReply("", 1, { format: "", tools: "" }), id: "plain" };
    const began = performance.now();
    abort.current = new AbortController();
    setReply(next);
    setProblem(null);
    const body = {
      model: about.model,
      prompt: text,
      max_tokens: Number(maxTokens) || DEFAULT_TOKENS,
      stream: true,
      stream_options: { include_usage: true },
      explain_cache: true,
    };
    try {
      for await (const chunk of api.stream("v1/completions", body, abort.current.signal)) {
        if (addChunk(next, chunk as Chunk)) {
          next.firstTokenMs ??= performance.now() - began;
        }
        setReply({ ...next });
      }
      next.state = "done";
    } catch (error) {
      next.state = isAborted(error) ? "stopped" : "failed";
      setProblem(next.state === "failed" ? problemOf(asApiError(error)) : null);
    }
    next.totalMs = performance.now() - began;
    setReply({ ...next });
  };
  return (
    <form
      class="plain"
      onSubmit={(event) => {
        event.preventDefault();
        complete();
      }}
    >
      <h1>Completions</h1>
      <p class="hint">{about.model} has no chat template, so it can continue a text, but not take turns.</p>
      <label class="field">
        <span>Text</span>
        <textarea rows={8} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field numeric">
        <span>Most tokens</span>
        <input inputMode="numeric" value={maxTokens} onInput={(event) => setMaxTokens(event.currentTarget.value)} />
      </label>
      <div class="actions">
        {isStreaming ? (
          <button type="button" class="primary" onClick={() => abort.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={!text}>
            Continue the text
          </button>
        )}
        {reply && !isStreaming && (
          <button type="button" onClick={() => setText(text + (reply.answers[0]?.content ?? ""))}>
            Append to the text
          </button>
        )}
      </div>
      {problem && <Fault error={problem} />}
      {reply && <pre class="formatted">{reply.answers[0]?.content}</pre>}
      {reply && !isStreaming && <Measures reply={reply} />}
    </form>
  );
}
