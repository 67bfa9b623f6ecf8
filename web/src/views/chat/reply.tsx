// A reply: its answers side by side, what became of the request, and what can be done with it.

import { useState } from "preact/hooks";
import { count, counted } from "../../format.ts";
import { Fault } from "../../parts/fault.tsx";
import { useStore } from "../../store.ts";
import { AnswerText, Calls } from "./answer.tsx";
import { Branches } from "./branches.tsx";
import type { ChatStore } from "./chat_store.ts";
import { countsOf } from "./chunks.ts";
import type { Answer, Reply } from "./conversation.ts";
import { colouring, type Kind, Legend, type TokenSettingsStore } from "./kinds.tsx";
import { Measures } from "./measures.tsx";
import { ofPrompt, Tokens } from "./tokens.tsx";

interface ReplyProps {
  chats: ChatStore;
  reply: Reply;
  settings: TokenSettingsStore;
  isLast: boolean;
}

export function ReplyTurn({ chats, reply, settings, isLast }: ReplyProps) {
  const [showsPrompt, setShowsPrompt] = useState(false);
  const { isOn } = useStore(settings);
  const isStreaming = reply.state === "streaming";
  const hasTokens = reply.answers.some(({ tokens }) => tokens.length > 0);
  return (
    <article class="turn reply" aria-label="Answer" aria-busy={isStreaming}>
      <Answers chats={chats} reply={reply} settings={settings} isLast={isLast} />
      {reply.problem && <Fault error={reply.problem} onRetry={() => chats.retry(reply)} />}
      {reply.state === "stopped" && <p class="hint">Stopped.</p>}
      {!isStreaming && <Measures reply={reply} />}
      {hasTokens && (isOn || showsPrompt) && (
        <Legend
          settings={settings}
          counts={legendOf(reply, isOn, showsPrompt)}
          of={isOn && reply.answers.length > 1 ? `${reply.answers.length} answers together:` : ""}
        />
      )}
      {showsPrompt && <Prompt reply={reply} settings={settings} />}
      <div class="actions">
        {isStreaming ? (
          <button type="button" onClick={() => chats.stop(reply)}>
            Stop
          </button>
        ) : (
          <>
            <Branches chats={chats} turn={reply} noun="answer" />
            <CopyButton text={reply.answers[reply.picked]?.content ?? ""} />
            {reply.state !== "failed" && (
              <button type="button" class="quiet" onClick={() => chats.retry(reply)}>
                Another answer
              </button>
            )}
          </>
        )}
        {hasTokens && (
          <button
            type="button"
            class="quiet"
            aria-pressed={isOn}
            title="Show the tokens of answers, and how each came about"
            onClick={() => settings.change({ isOn: !isOn })}
          >
            Tokens
          </button>
        )}
        {reply.promptPieces.length > 0 && (
          <button
            type="button"
            class="quiet"
            aria-pressed={showsPrompt}
            title="Show the prompt's tokens, and which were cached"
            onClick={() => setShowsPrompt(!showsPrompt)}
          >
            Prompt
          </button>
        )}
      </div>
    </article>
  );
}

function Answers({ chats, reply, settings, isLast }: ReplyProps) {
  const isOne = reply.answers.length === 1;
  const results = (answer: Answer) => {
    const isOpen = isLast && reply.state === "done" && answer === reply.answers[reply.picked];
    return isOpen ? (given: { id: string; name: string; content: string }[]) => chats.sendResults(reply, given) : null;
  };
  return (
    <div class={isOne ? "answers" : "answers side-by-side"}>
      {reply.answers.map((answer, place) => (
        <div key={`${place}`} class={isOne ? "one" : `card${place === reply.picked ? " is-picked" : ""}`}>
          {!isOne && (
            <label class="pick">
              <input
                type="radio"
                name={`pick-${reply.id}`}
                checked={place === reply.picked}
                onChange={() => chats.pick(reply, place)}
              />
              Answer {place + 1}
            </label>
          )}
          <AnswerText answer={answer} reply={reply} settings={settings} label={`answer ${place + 1}`} />
          <Calls calls={answer.calls} onResults={results(answer)} />
        </div>
      ))}
    </div>
  );
}

/** The kinds that are in sight, and how many tokens are of each. */
function legendOf(reply: Reply, hasTokens: boolean, hasPrompt: boolean): Partial<Record<Kind, number>> {
  const cached = reply.usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const { forced, foreseen, sampled } = countsOf(reply);
  return { ...(hasPrompt ? { cached } : {}), ...(hasTokens ? { forced, foreseen, sampled } : {}) };
}

function Prompt({ reply, settings }: { reply: Reply; settings: TokenSettingsStore }) {
  const shown = useStore(settings);
  const cached = reply.usage?.prompt_tokens_details?.cached_tokens ?? 0;
  return (
    <div class={`prompt-tokens card ${colouring(shown)}`}>
      <h2>
        The prompt: {count(cached)} of {counted(reply.promptPieces.length, "token")} were cached
      </h2>
      <Tokens key={`${cached}`} label="Tokens of the prompt" tokens={ofPrompt(reply.promptPieces, cached)} />
    </div>
  );
}

function CopyButton({ text }: { text: string }) {
  const [isCopied, setIsCopied] = useState(false);
  if (!text || !navigator.clipboard) {
    return null;
  }
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setIsCopied(true);
    window.setTimeout(() => setIsCopied(false), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={() => copy().catch(() => undefined)}>
      {isCopied ? "Copied" : "Copy"}
    </button>
  );
}
