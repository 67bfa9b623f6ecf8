// Where a message is written: its text, documents, and what is set beside it.

import { useEffect, useRef, useState } from "preact/hooks";
import type { About } from "../../contract.ts";
import { prefersTouch } from "../../theme.ts";
import type { ChatStore } from "./chat_store.ts";
import { type Conversation, pathOf, type Reply, SAMPLING } from "./conversation.ts";
import { FormatPanel, NUMBERS, SettingsPanel, ToolsPanel } from "./panels.tsx";
import { askedOf, faultOfFormat, faultOfNumber, readTools } from "./request.ts";

const MAX_FILE_BYTES = 1_000_000;

type Panel = "settings" | "format" | "tools";

export function Composer({ chats, about }: { chats: ChatStore; about: About }) {
  const [panel, setPanel] = useState<Panel | null>(null);
  const [refused, setRefused] = useState("");
  const [isOver, setIsOver] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const conversation = chats.current;
  const last = pathOf(conversation).at(-1);
  const streaming = last?.role === "reply" && last.state === "streaming" ? last : null;
  const problems = problemsOf(conversation, last?.role === "reply" ? last : null);
  const blocker = blockerOf(conversation);
  const canSend = !streaming && !blocker && (conversation.draft.trim() !== "" || conversation.documents.length > 0);

  useEffect(() => {
    if (problems.format) {
      setPanel("format");
    } else if (problems.tools) {
      setPanel("tools");
    }
  }, [problems.format, problems.tools]);
  useEffect(() => {
    const { current } = field;
    if (current) {
      current.style.height = "auto";
      current.style.height = `${Math.min(current.scrollHeight + 2, window.innerHeight * 0.4)}px`;
    }
  }, [conversation.draft, conversation.id]);
  useEffect(() => {
    setRefused("");
    if (!prefersTouch()) {
      field.current?.focus({ preventScroll: true });
    }
  }, [conversation.id]);

  const attach = async (files: Iterable<File>) => {
    const { documents, faults } = await readFiles(files);
    conversation.documents = [...conversation.documents, ...documents];
    setRefused(faults.join(" "));
    chats.changed();
  };
  const toggle = (name: Panel, label: string, isSet: boolean) => (
    <button
      type="button"
      class={`quiet toggle${isSet ? " is-set" : ""}`}
      aria-expanded={panel === name}
      onClick={() => setPanel(panel === name ? null : name)}
    >
      {label}
    </button>
  );
  return (
    <form
      class={`composer${isOver ? " is-over" : ""}`}
      aria-label="Your message"
      onSubmit={(event) => {
        event.preventDefault();
        if (canSend) {
          setRefused("");
          chats.send();
        }
      }}
      onDragOver={(event) => {
        event.preventDefault();
        setIsOver(true);
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setIsOver(false);
        attach(event.dataTransfer?.files ?? []);
      }}
    >
      {panel === "settings" && <SettingsPanel chats={chats} about={about} />}
      {panel === "format" && <FormatPanel chats={chats} problem={problems.format} />}
      {panel === "tools" && <ToolsPanel chats={chats} problem={problems.tools} />}
      <Attached chats={chats} />
      {refused && (
        <p class="field-fault" role="alert">
          {refused}
        </p>
      )}
      <textarea
        ref={field}
        class="message"
        rows={1}
        aria-label="Message"
        placeholder={`Message to ${conversation.model ?? about.model}`}
        value={conversation.draft}
        onInput={(event) => {
          conversation.draft = event.currentTarget.value;
          chats.changed();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !prefersTouch()) {
            event.preventDefault();
            event.currentTarget.form?.requestSubmit();
          }
        }}
      />
      <div class="composer-bar">
        <AttachButton onFiles={attach} />
        {toggle("format", formatLabel(conversation), conversation.format.kind !== "none")}
        {toggle("tools", "Tools", conversation.tools.trim() !== "")}
        {toggle("settings", "Settings", conversation.system.trim() !== "")}
        <span class="composer-end">
          {blocker && <span class="hint">{blocker}</span>}
          {streaming ? (
            <button type="button" class="primary" onClick={() => chats.stop(streaming)}>
              Stop
            </button>
          ) : (
            <button type="submit" class="primary" disabled={!canSend}>
              Send
            </button>
          )}
        </span>
      </div>
    </form>
  );
}

function formatLabel({ format }: Conversation): string {
  return { none: "Format", json_schema: "JSON Schema", regex: "Regex", grammar: "Grammar", choice: "Choice" }[
    format.kind
  ];
}

/** Why a message cannot be sent, or null. */
function blockerOf(conversation: Conversation): string | null {
  if (faultOfFormat(conversation.format)) {
    return "The format is not complete.";
  }
  if (readTools(conversation.tools).fault) {
    return "The tools are not complete.";
  }
  const bad = SAMPLING.find((name) => faultOfNumber(name, conversation.sampling[name]) !== null);
  return bad ? `${NUMBERS[bad].label}: enter ${faultOfNumber(bad, conversation.sampling[bad])}.` : null;
}

/** What the server refused of the format and the tools, as long as they are as they were. */
function problemsOf(conversation: Conversation, reply: Reply | null) {
  const asked = askedOf(conversation);
  const problem = reply?.problem?.status === 400 ? reply.problem : null;
  const isOf = (names: string[]) => problem !== null && names.includes((problem.param ?? "").split(".")[0] ?? "");
  const isFormat =
    isOf(["response_format", "structured_outputs"]) && reply?.asked.format === asked.format && asked.format !== "";
  return {
    format: isFormat ? problem : null,
    tools: isOf(["tools"]) && reply?.asked.tools === asked.tools ? problem : null,
  };
}

function Attached({ chats }: { chats: ChatStore }) {
  const conversation = chats.current;
  if (conversation.documents.length === 0) {
    return null;
  }
  return (
    <ul class="attached" aria-label="Attached documents">
      {conversation.documents.map((document) => (
        <li key={document.name}>
          {document.name}
          <button
            type="button"
            class="quiet icon"
            aria-label={`Remove ${document.name}`}
            onClick={() => {
              conversation.documents = conversation.documents.filter((other) => other !== document);
              chats.changed();
            }}
          >
            ×
          </button>
        </li>
      ))}
    </ul>
  );
}

function AttachButton({ onFiles }: { onFiles: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Text files"
        onChange={({ currentTarget }) => {
          onFiles([...(currentTarget.files ?? [])]);
          currentTarget.value = "";
        }}
      />
      <button
        type="button"
        class="quiet icon"
        title="Attach text files"
        aria-label="Attach text files"
        onClick={() => input.current?.click()}
      >
        <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
          <path
            d="m15.5 9-5.6 5.7a3.4 3.4 0 0 1-4.8-4.8l6-6a2.3 2.3 0 0 1 3.2 3.2l-5.9 6a1.1 1.1 0 0 1-1.6-1.6l5.3-5.3"
            fill="none"
            stroke="currentColor"
            stroke-width="1.5"
            stroke-linecap="round"
          />
        </svg>
      </button>
    </>
  );
}

async function readFiles(files: Iterable<File>) {
  const documents: Conversation["documents"] = [];
  const faults: string[] = [];
  for (const file of files) {
    if (file.size > MAX_FILE_BYTES) {
      faults.push(`${file.name} is larger than 1 MB.`);
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes("\0")) {
        throw new TypeError();
      }
      documents.push({ name: file.name, text });
    } catch {
      faults.push(`${file.name} is not a text file in UTF-8.`);
    }
  }
  return { documents, faults };
}
