// What can be set beside a message: settings, the format of the answer, tools.

import type { Problem } from "../../api.ts";
import type { About } from "../../contract.ts";
import { sentence } from "../../format.ts";
import { isPlaceMissing } from "../../parts/fault.tsx";
import type { ChatStore } from "./chat_store.ts";
import type { FormatKind, SamplingName } from "./conversation.ts";
import { faultOfFormat, faultOfNumber, readTools } from "./request.ts";

export const NUMBERS: Record<SamplingName, { label: string; hint: string }> = {
  temperature: { label: "Temperature", hint: "0 takes the likeliest token" },
  top_p: { label: "Top p", hint: "Share of probability that is sampled from" },
  max_tokens: { label: "Most tokens", hint: "Of one answer" },
  seed: { label: "Seed", hint: "The same seed, the same answer" },
  n: { label: "Answers", hint: "Side by side, at most 8" },
};

export function SettingsPanel({ chats, about }: { chats: ChatStore; about: About }) {
  const conversation = chats.current;
  return (
    <div class="panel">
      <label class="field wide">
        <span>System prompt</span>
        <textarea
          rows={3}
          value={conversation.system}
          placeholder="What the model is to know before the conversation"
          onInput={(event) => {
            conversation.system = event.currentTarget.value;
            chats.changed();
          }}
        />
      </label>
      {about.models.length > 1 && (
        <label class="field">
          <span>Model</span>
          <select
            value={conversation.model ?? about.model}
            onChange={(event) => {
              conversation.model = event.currentTarget.value;
              chats.changed();
            }}
          >
            {about.models.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      {(Object.keys(NUMBERS) as SamplingName[]).map((name) => (
        <NumberField key={name} chats={chats} name={name} />
      ))}
    </div>
  );
}

export function NumberField({ chats, name }: { chats: ChatStore; name: SamplingName }) {
  const { label, hint } = NUMBERS[name];
  const typed = chats.current.sampling[name];
  const fault = faultOfNumber(name, typed);
  return (
    <label class="field numeric" title={hint}>
      <span>{label}</span>
      <input
        inputMode="decimal"
        value={typed}
        placeholder={name === "n" ? "1" : "default"}
        aria-invalid={fault !== null}
        onInput={(event) => {
          chats.current.sampling[name] = event.currentTarget.value.trim();
          chats.changed();
        }}
      />
      {fault && <span class="field-fault">Enter {fault}.</span>}
    </label>
  );
}

const KINDS: Record<FormatKind, string> = {
  none: "Free text",
  json_schema: "JSON Schema",
  regex: "Regular expression",
  grammar: "Grammar",
  choice: "Choice",
};
const PLACEHOLDERS = {
  grammar: 'root ::= "The answer is " [0-9]+ "."',
  choice: "yes\nno\nperhaps",
  json_schema: '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}',
  regex: "\\d{4}-\\d\\d-\\d\\d",
};

const HINTS = { json_schema: "", regex: "", grammar: "In EBNF or Lark.", choice: "One on each line." };

export function FormatPanel({ chats, problem }: { chats: ChatStore; problem: Problem | null }) {
  const { format } = chats.current;
  const { kind } = format;
  const fault = kind !== "none" && format[kind].trim() ? faultOfFormat(format) : null;
  return (
    <div class="panel">
      <fieldset class="kinds">
        <legend class="out-of-sight">Format of the answer</legend>
        {(Object.keys(KINDS) as FormatKind[]).map((each) => (
          <label key={each}>
            <input
              type="radio"
              name="format"
              checked={each === kind}
              onChange={() => {
                format.kind = each;
                chats.changed();
              }}
            />
            {KINDS[each]}
          </label>
        ))}
      </fieldset>
      {kind !== "none" && (
        <SourceField
          label={KINDS[kind]}
          value={format[kind]}
          placeholder={PLACEHOLDERS[kind]}
          fault={fault}
          problem={problem}
          onInput={(value) => {
            format[kind] = value;
            chats.changed();
          }}
        />
      )}
      {kind !== "none" && (
        <p class="hint wide">{HINTS[kind]} The answer will match this, whatever the model would have said.</p>
      )}
    </div>
  );
}

export function ToolsPanel({ chats, problem }: { chats: ChatStore; problem: Problem | null }) {
  const { tools } = chats.current;
  return (
    <div class="panel">
      <SourceField
        label="Tools, as JSON"
        value={tools}
        placeholder={
          '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]'
        }
        fault={readTools(tools).fault}
        problem={problem}
        onInput={(value) => {
          chats.current.tools = value;
          chats.changed();
        }}
      />
      <p class="hint wide">The model may call them. You fill in what they give back.</p>
    </div>
  );
}

interface SourceFieldProps {
  label: string;
  value: string;
  placeholder: string;
  fault: string | null;
  problem: Problem | null;
  onInput: (value: string) => void;
}

/** A field for JSON or a pattern, with what is wrong with it under it: what is typed, or what the server refused. */
function SourceField({ label, value, placeholder, fault, problem, onInput }: SourceFieldProps) {
  const id = `source-${label.replaceAll(/\W+/g, "-")}`;
  const hasFault = fault !== null || problem !== null;
  return (
    <div class="field wide">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="mono"
        rows={5}
        value={value}
        placeholder={placeholder}
        spellcheck={false}
        autocapitalize="off"
        aria-invalid={hasFault}
        aria-describedby={hasFault ? `${id}-fault` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {hasFault && (
        <p class="field-fault" id={`${id}-fault`}>
          {fault ?? (problem && sentence(problem.message))}
          {fault === null && problem && isPlaceMissing(problem) && (
            <>
              {" "}
              At <code>{problem.pointer || "/"}</code>.
            </>
          )}
          {fault === null && problem && ` ${problem.remedy}`}
        </p>
      )}
    </div>
  );
}
