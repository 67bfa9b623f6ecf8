// An empty conversation: what there is to see, and three beginnings that show it.

import type { ChatStore } from "./chat_store.ts";
import type { Conversation } from "./conversation.ts";

const SHOP =
  "You answer for the shop Rosmund. The shop is in Nevbel. We open at 8 and close at 19. Nina Linsen runs the shop." +
  " The lamp costs 45 euros. The chair costs 120 euros. The kettle costs 38 euros.";
const PERSON = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 40 },
    age: { type: "integer", minimum: 0, maximum: 999 },
    job: { type: "string", minLength: 1, maxLength: 40 },
    city: { type: "string", minLength: 1, maxLength: 40 },
    remote: { type: "boolean" },
  },
  required: ["name", "age", "job", "city", "remote"],
};
const DOCUMENT =
  "Meet Toran Grinasen, 47 years old. Toran works as a baker. Toran has a house in Lumsasen. Toran works from home.";

interface Starter {
  name: string;
  words: string;
  set: (conversation: Conversation) => void;
}

const STARTERS: Starter[] = [
  {
    name: "Questions to a shop",
    words: "Every turn begins where the cache ends.",
    set: (conversation) => {
      conversation.system = SHOP;
      conversation.draft = "What does the lamp cost?";
    },
  },
  {
    name: "A person as JSON",
    words: "Text that the schema forces is not sampled.",
    set: (conversation) => {
      conversation.system = "You read documents. Answer briefly, or give JSON.";
      conversation.format.kind = "json_schema";
      conversation.format.json_schema = JSON.stringify(PERSON, null, 2);
      conversation.sampling.temperature = "0";
      conversation.draft = `${DOCUMENT}\n\nExtract the person as JSON.`;
    },
  },
  {
    name: "An answer by a pattern",
    words: "Nothing else can be said.",
    set: (conversation) => {
      conversation.system = SHOP;
      conversation.format.kind = "regex";
      conversation.format.regex = "The (lamp|chair|kettle) costs [1-9]\\d{0,2} euros\\.";
      conversation.draft = "How much is the chair?";
    },
  },
];

export function Welcome({ chats, model }: { chats: ChatStore; model: string }) {
  return (
    <div class="welcome">
      <p class="welcome-line">
        Talk to <code>{model}</code>
      </p>
      <p>
        Each answer says how much of its prompt was cached, and of each token how it came about. Edit an earlier message
        to branch: what the branches share is not computed again.
      </p>
      <ul class="starters" aria-label="Examples">
        {STARTERS.map(({ name, words, set }) => (
          <li key={name}>
            <button
              type="button"
              onClick={() => {
                chats.current.format.kind = "none";
                chats.current.isExample = true;
                set(chats.current);
                chats.changed();
                document.querySelector<HTMLElement>(".composer .message")?.focus();
              }}
            >
              <strong>{name}</strong>
              <span class="hint">{words}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
