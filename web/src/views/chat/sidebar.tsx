// The list of conversations.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ChatStore } from "./chat_store.ts";
import { type Conversation, titleOf } from "./conversation.ts";

export function Sidebar({ chats, onShow }: { chats: ChatStore; onShow: () => void }) {
  const [renamed, setRenamed] = useState<Conversation | null>(null);
  return (
    <nav class="sidebar" aria-label="Conversations">
      <button
        type="button"
        class="begin"
        onClick={() => {
          chats.begin();
          onShow();
        }}
      >
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d="M8 3v10M3 8h10" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" />
        </svg>
        New conversation
      </button>
      <ul>
        {chats.conversations.map((conversation) => (
          <li key={conversation.id} class={conversation === chats.current ? "is-shown" : ""}>
            {conversation === renamed ? (
              <Title
                conversation={conversation}
                onTitle={(title) => {
                  chats.rename(conversation, title);
                  setRenamed(null);
                }}
              />
            ) : (
              <>
                <button
                  type="button"
                  class="quiet show"
                  aria-current={conversation === chats.current}
                  onClick={() => {
                    chats.show(conversation);
                    onShow();
                  }}
                >
                  {titleOf(conversation)}
                </button>
                <Menu
                  title={titleOf(conversation)}
                  onRename={() => setRenamed(conversation)}
                  onDelete={() => chats.remove(conversation)}
                />
              </>
            )}
          </li>
        ))}
      </ul>
      <p class="hint">
        {chats.isStorageFull
          ? "This browser keeps no more. Delete conversations to make room for new ones."
          : "Kept in this browser only."}
      </p>
    </nav>
  );
}

function Title({ conversation, onTitle }: { conversation: Conversation; onTitle: (title: string) => void }) {
  const [title, setTitle] = useState(titleOf(conversation));
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  return (
    <form
      class="rename"
      onSubmit={(event) => {
        event.preventDefault();
        onTitle(title);
      }}
    >
      <input
        ref={field}
        aria-label="Name of the conversation"
        value={title}
        onInput={(event) => setTitle(event.currentTarget.value)}
        onBlur={() => onTitle(title)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation(); // the list stays open
            onTitle("");
          }
        }}
      />
    </form>
  );
}

function Menu({ title, onRename, onDelete }: { title: string; onRename: () => void; onDelete: () => void }) {
  const [isAsking, setIsAsking] = useState(false);
  if (isAsking) {
    return (
      <span class="menu is-asking">
        <button type="button" class="danger" onClick={onDelete} aria-label={`Delete ${title} for good`}>
          Delete
        </button>
        <button type="button" class="quiet" onClick={() => setIsAsking(false)}>
          Keep
        </button>
      </span>
    );
  }
  return (
    <span class="menu">
      <button type="button" class="quiet icon" title="Rename" aria-label={`Rename ${title}`} onClick={onRename}>
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d="M2.5 13.5 3 11l7.5-7.5 2 2L5 13z" fill="none" stroke="currentColor" stroke-width="1.4" />
        </svg>
      </button>
      <button
        type="button"
        class="quiet icon"
        title="Delete"
        aria-label={`Delete ${title}`}
        onClick={() => setIsAsking(true)}
      >
        <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
          <path d="m4 4 8 8m0-8-8 8" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" />
        </svg>
      </button>
    </span>
  );
}
