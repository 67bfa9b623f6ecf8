// The view Chat: conversations at the side, the one that is shown, and the next message.

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useStore } from "../../store.ts";
import type { ViewProps } from "../../view.ts";
import { Composer } from "./composer.tsx";
import { titleOf } from "./conversation.ts";
import { TokenSettingsStore } from "./kinds.tsx";
import { Plain } from "./plain.tsx";
import { Sidebar } from "./sidebar.tsx";
import { Thread } from "./thread.tsx";
import { Welcome } from "./welcome.tsx";
import "./chat.css";
import "./composer.css";

export function ChatView({ api, about, chats }: ViewProps) {
  const [showsSidebar, setShowsSidebar] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  const settings = useMemo(() => new TokenSettingsStore(), []);
  useStore(chats.changes);
  useLayoutEffect(() => {
    const close = (event: KeyboardEvent) => {
      if (event.key === "Escape" && showsSidebar) {
        setShowsSidebar(false);
        opener.current?.focus();
      }
    };
    window.addEventListener("keydown", close);
    return () => window.removeEventListener("keydown", close);
  }, [showsSidebar]);
  if (!about.has_text) {
    return <p class="empty">This checkpoint has no tokenizer, so there is no text to chat in. The other views work.</p>;
  }
  if (!about.has_chat) {
    return <Plain api={api} about={about} />;
  }
  return (
    <div class={`chat${showsSidebar ? " shows-sidebar" : ""}`}>
      <Sidebar chats={chats} onShow={() => setShowsSidebar(false)} />
      <div class="chat-main">
        <div class={`chat-head${chats.current.numTurns === 0 ? " is-empty" : ""}`}>
          <button
            ref={opener}
            type="button"
            class="sidebar-button"
            aria-expanded={showsSidebar}
            onClick={() => setShowsSidebar(!showsSidebar)}
          >
            Conversations
          </button>
          <h1>{titleOf(chats.current)}</h1>
        </div>
        {chats.current.numTurns === 0 ? (
          <Welcome chats={chats} model={about.model} />
        ) : (
          <Thread chats={chats} settings={settings} />
        )}
        <Composer chats={chats} about={about} />
      </div>
    </div>
  );
}
