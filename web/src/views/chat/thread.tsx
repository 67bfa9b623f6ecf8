// The turns of a conversation that are shown, and where the page stands in them.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { counted } from "../../format.ts";
import { prefersTouch } from "../../theme.ts";
import { Branches } from "./branches.tsx";
import type { ChatStore } from "./chat_store.ts";
import { pathOf, type TextDocument, type ToolsTurn, type UserTurn } from "./conversation.ts";
import type { TokenSettingsStore } from "./kinds.tsx";
import { ReplyTurn } from "./reply.tsx";
import "./thread.css";

const NEAR_END = 80;

export function Thread({ chats, settings }: { chats: ChatStore; settings: TokenSettingsStore }) {
  const conversation = chats.current;
  const path = pathOf(conversation);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const last = path.at(-1);
  useEffect(() => {
    isAtEnd.current = true;
  }, [conversation.id, conversation.numTurns]);
  const keepEnd = () => {
    if (isAtEnd.current && box.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  };
  useLayoutEffect(keepEnd);
  useEffect(() => {
    const observer = new ResizeObserver(keepEnd); // a panel below takes room
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return (
    <section
      class="thread"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by the keyboard
      tabIndex={0}
      aria-label="Conversation"
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END;
      }}
    >
      <div class="thread-inner">
        {conversation.system.trim() && path.length > 0 && (
          <details class="system">
            <summary>System prompt</summary>
            <p>{conversation.system}</p>
          </details>
        )}
        {path.map((turn) => {
          const key = `${conversation.id} ${turn.id}`;
          if (turn.role === "user") {
            return <UserTurnView key={key} chats={chats} turn={turn} />;
          }
          if (turn.role === "tools") {
            return <ToolsTurnView key={key} turn={turn} />;
          }
          return <ReplyTurn key={key} chats={chats} reply={turn} settings={settings} isLast={turn === last} />;
        })}
      </div>
    </section>
  );
}

function UserTurnView({ chats, turn }: { chats: ChatStore; turn: UserTurn }) {
  const [isEdited, setIsEdited] = useState(false);
  if (isEdited) {
    return <EditForm chats={chats} turn={turn} onEnd={() => setIsEdited(false)} />;
  }
  return (
    <article class="turn user" aria-label="Your message">
      <div class="bubble">
        <Documents documents={turn.documents} />
        {turn.text}
      </div>
      <div class="actions">
        <Branches chats={chats} turn={turn} noun="message" />
        <button type="button" class="quiet" onClick={() => setIsEdited(true)}>
          Edit
        </button>
      </div>
    </article>
  );
}

function EditForm({ chats, turn, onEnd }: { chats: ChatStore; turn: UserTurn; onEnd: () => void }) {
  const [text, setText] = useState(turn.text);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="turn user is-edited"
      aria-label="Edit your message"
      onSubmit={(event) => {
        event.preventDefault();
        onEnd();
        chats.edit(turn, text.trim());
      }}
    >
      <textarea
        ref={field}
        aria-label="Your message"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            onEnd();
          } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !prefersTouch()) {
            event.preventDefault();
            event.currentTarget.form?.requestSubmit();
          }
        }}
      />
      <p class="hint">The message as it was stays, as another branch. What both have in common is in the cache.</p>
      <div class="actions">
        <button type="submit" class="primary" disabled={!text.trim() && turn.documents.length === 0}>
          Send as a new branch
        </button>
        <button type="button" class="quiet" onClick={onEnd}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function Documents({ documents }: { documents: TextDocument[] }) {
  return documents.map(({ name, text }, place) => (
    <details key={`${place}`} class="document">
      <summary>
        {name} <span class="hint">{counted(text.length, "character")}</span>
      </summary>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by the keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </details>
  ));
}

function ToolsTurnView({ turn }: { turn: ToolsTurn }) {
  return (
    <article class="turn tools" aria-label="Results of tools">
      {turn.results.map(({ id, name, content }) => (
        <div key={id} class="card">
          <p class="call-title">
            Result of <code>{name}</code>
          </p>
          <pre class="formatted">{content || "(nothing)"}</pre>
        </div>
      ))}
    </article>
  );
}
