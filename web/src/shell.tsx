// The page around the views: tabs by hash, the model's name, the theme, the key, and what is said to screen readers.

import type { ComponentType } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Api, type ApiError, asApiError } from "./api.ts";
import type { About } from "./contract.ts";
import { Fault } from "./parts/fault.tsx";
import { useStore } from "./store.ts";
import { setTheme, theme } from "./theme.ts";
import type { ViewProps } from "./view.ts";
import { ChatView } from "./views/chat/chat.tsx";
import { ChatStore } from "./views/chat/chat_store.ts";
import { ConstraintView } from "./views/constraint.tsx";
import { NowHistory } from "./views/now/history.ts";
import { NowView } from "./views/now.tsx";
import { RequestsView } from "./views/requests.tsx";
import { TreeView } from "./views/tree/tree.tsx";

interface Tab {
  hash: string;
  name: string;
  view: ComponentType<ViewProps>;
}

const FIRST: Tab = { hash: "#chat", name: "Chat", view: ChatView };
const TABS: Tab[] = [
  FIRST,
  { hash: "#tree", name: "Tree", view: TreeView },
  { hash: "#now", name: "Now", view: NowView },
  { hash: "#constraint", name: "Constraint", view: ConstraintView },
  { hash: "#requests", name: "Requests", view: RequestsView },
];

function tabOfLocation(): Tab {
  return TABS.find((tab) => tab.hash === location.hash) ?? FIRST;
}

export function Shell({ api }: { api: Api }) {
  const [tab, setTab] = useState(tabOfLocation);
  const [said, setSaid] = useState("");
  const { about, error, load } = useAbout(api);
  const wantsKey = useStore(api.wantsKey);
  const main = useRef<HTMLElement>(null);
  const announce = useCallback((sentence: string) => setSaid(sentence), []);
  const chats = useMemo(() => new ChatStore(api, announce), [api, announce]);
  const history = useMemo(() => new NowHistory(), []);

  useEffect(() => {
    const follow = () => setTab(tabOfLocation());
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => {
    document.title = `${tab.name} – Phloem`;
  }, [tab]);

  const View = tab.view;
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
      <header class="bar">
        <span class="brand">
          <Mark />
          <span class="brand-name">Phloem</span>
        </span>
        <nav class="tabs" aria-label="Views">
          {TABS.map(({ hash, name }) => (
            <a key={hash} href={hash} aria-current={hash === tab.hash ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        {about && (
          <span class="bar-model" title={`Phloem ${about.version}`}>
            {about.model}
          </span>
        )}
        <ThemeSwitch />
      </header>
      {wantsKey && <KeyForm api={api} onKey={load} />}
      <main id="main" tabIndex={tab === FIRST ? -1 : 0} ref={main} class={`view view-${tab.name.toLowerCase()}`}>
        {error && !wantsKey && <Fault error={error} onRetry={load} />}
        {about ? <View api={api} about={about} chats={chats} history={history} announce={announce} /> : null}
      </main>
      <div class="out-of-sight" aria-live="polite">
        {said}
      </div>
    </>
  );
}

function useAbout(api: Api) {
  const [about, setAbout] = useState<About | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const load = useCallback(() => {
    setError(null);
    api.about().then(setAbout, (reason) => setError(asApiError(reason)));
  }, [api]);
  useEffect(load, [load]);
  return { about, error, load };
}

function KeyForm({ api, onKey }: { api: Api; onKey: () => void }) {
  const wrong = api.hasKey;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  return (
    <form
      class="key-form"
      onSubmit={(event) => {
        event.preventDefault();
        api.setKey(field.current?.value.trim() ?? "");
        onKey();
      }}
    >
      <label for="key">
        {wrong ? "The server did not accept this key. API key:" : "This server wants an API key:"}
      </label>
      <input id="key" ref={field} type="password" autocomplete="off" spellcheck={false} />
      <button type="submit" class="primary">
        Use this key
      </button>
      <span class="hint">It is kept until you close this tab.</span>
    </form>
  );
}

function ThemeSwitch() {
  const choice = useStore(theme);
  return (
    <label class="theme-switch">
      <span class="out-of-sight">Theme</span>
      <select
        value={choice}
        onChange={(event) => {
          const { value } = event.currentTarget;
          setTheme(value === "light" || value === "dark" ? value : "auto");
        }}
      >
        <option value="auto">Theme: auto</option>
        <option value="light">Theme: light</option>
        <option value="dark">Theme: dark</option>
      </select>
    </label>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
      <path
        d="M12 22V11M12 14.5 6.5 9M12 11l5-5"
        fill="none"
        stroke="currentColor"
        stroke-width="2"
        stroke-linecap="round"
      />
      <circle cx="5.2" cy="7.7" r="2.4" fill="currentColor" />
      <circle cx="18.3" cy="4.7" r="2.4" fill="currentColor" />
      <circle cx="12" cy="6.6" r="1.7" fill="currentColor" />
    </svg>
  );
}
