// One answer: thoughts, text or tokens, calls of tools.

import { useState } from "preact/hooks";
import { Markdown } from "../../parts/markdown.tsx";
import { useStore } from "../../store.ts";
import type { Answer, Reply, ToolCall, ToolResult } from "./conversation.ts";
import { colouring, type TokenSettingsStore } from "./kinds.tsx";
import { ofAnswer, Tokens } from "./tokens.tsx";

interface AnswerProps {
  answer: Answer;
  reply: Reply;
  settings: TokenSettingsStore;
  label: string;
}

const ENDS: Record<string, string> = {
  length: "Cut at the most tokens that were asked for, or at the end of the context.",
  error: "The server ended this answer with an error.",
};

export function AnswerText({ answer, reply, settings, label }: AnswerProps) {
  const { isOn, ...kinds } = useStore(settings);
  const isStreaming = reply.state === "streaming" && answer.finish === null;
  const isEmpty = !answer.content && !answer.reasoning && answer.calls.length === 0;
  if (isStreaming && isEmpty && answer.tokens.length === 0) {
    return <p class="waiting hint">Waiting for the first token …</p>;
  }
  if (isOn && answer.tokens.length > 0) {
    return (
      <div class={`answer ${colouring({ isOn, ...kinds })}`}>
        <Tokens label={`Tokens of ${label}`} tokens={answer.tokens.map(ofAnswer)} />
        {answer.finish && ENDS[answer.finish] && <p class="hint">{ENDS[answer.finish]}</p>}
      </div>
    );
  }
  return (
    <div class={`answer${isStreaming ? " is-streaming" : ""}`}>
      {isOn && !isStreaming && !isEmpty && (
        <p class="hint">What is known of tokens is kept until the page is loaded again.</p>
      )}
      {answer.reasoning && (
        <details class="thoughts">
          <summary>{answer.content || !isStreaming ? "Thoughts" : "Thinking …"}</summary>
          <Markdown text={answer.reasoning} />
        </details>
      )}
      {answer.content &&
        (reply.asked.format ? <Formatted text={answer.content} /> : <Markdown text={answer.content} />)}
      {isEmpty && !isStreaming && reply.state !== "failed" && <p class="hint">The answer is empty.</p>}
      {answer.finish && ENDS[answer.finish] && <p class="hint">{ENDS[answer.finish]}</p>}
    </div>
  );
}

/** An answer within a constraint is shown as it stands, JSON laid out. */
function Formatted({ text }: { text: string }) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // not JSON, or not all of it yet
  }
  return <pre class="formatted">{shown}</pre>;
}

interface CallsProps {
  calls: ToolCall[];
  /** Sends what the tools gave back; null if that cannot be, or was done. */
  onResults: ((results: ToolResult[]) => void) | null;
}

/** A card for each call, with a box for its result. */
export function Calls({ calls, onResults }: CallsProps) {
  const [results, setResults] = useState<string[]>([]);
  if (calls.length === 0) {
    return null;
  }
  return (
    <form
      class="calls"
      onSubmit={(event) => {
        event.preventDefault();
        onResults?.(calls.map(({ id, name }, place) => ({ id, name, content: results[place] ?? "" })));
      }}
    >
      {calls.map((call, place) => (
        <div key={call.id || place} class="card call">
          <p class="call-title">
            Call of <code>{call.name}</code>
          </p>
          <Formatted text={call.arguments} />
          {onResults && (
            <label class="call-result">
              Result of {call.name}
              <textarea
                rows={2}
                value={results[place] ?? ""}
                placeholder="What the tool gave back"
                onInput={(event) => {
                  const { value } = event.currentTarget;
                  setResults((before) => Object.assign([...before], { [place]: value }));
                }}
              />
            </label>
          )}
        </div>
      ))}
      {onResults && (
        <button type="submit" class="primary">
          {calls.length === 1 ? "Send the result" : "Send the results"}
        </button>
      )}
    </form>
  );
}
