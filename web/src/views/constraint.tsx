// The constraint view: a schema, pattern or grammar, what it enforces, and a text that is followed through it.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { ConstraintKind, ConstraintQuestion } from "../contract.ts";
import type { ViewProps } from "../view.ts";
import { choicesOf } from "./chat/request.ts";
import { type Answered, useAnswer } from "./constraint/answer.ts";
import { EXAMPLES, FIRST } from "./constraint/examples.ts";
import { Enforced, Findings } from "./constraint/findings.tsx";
import { guessKind, KINDS } from "./constraint/kind.ts";
import { MarkedField } from "./constraint/marked_field.tsx";
import { NextTokens } from "./constraint/next_tokens.tsx";
import { emptyOptions, Options, type QuestionOptions } from "./constraint/options.tsx";
import { Picture } from "./constraint/picture.tsx";
import { characterEnd, type Range, rangeOfError, utf16At } from "./constraint/places.ts";
import { Refusal } from "./constraint/refusal.tsx";
import "../parts/data.css";
import "./constraint/constraint.css";

const KEPT = "phloem.constraint";

interface Draft {
  /** null: guessed. */
  kind: ConstraintKind | null;
  source: string;
  text: string;
  options: QuestionOptions;
}

export function ConstraintView({ api, about, announce }: ViewProps) {
  const [draft, setDraft] = useState<Draft>(keptDraft);
  const change = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  useEffect(() => sessionStorage.setItem(KEPT, JSON.stringify(draft)), [draft]);
  const kind = draft.kind ?? guessKind(draft.source);
  const question = useMemo(() => questionOf(draft, kind), [draft, kind]);
  const answered = useAnswer(api, question);
  const { answer, error } = answered;
  const steps = answer?.steps ?? null;
  const sentence = steps?.sentence ?? "";
  useEffect(() => {
    if (sentence) announce(sentence);
  }, [sentence, announce]);

  return (
    <div class="constraint-page">
      <div class="constraint-head">
        <h1>Constraint</h1>
        <p class="hint">What a schema, pattern or grammar allows, and where a text leaves it.</p>
      </div>
      <div class="constraint-main">
        <div class="constraint-input">
          <p class="examples">
            <span class="hint">Examples:</span>
            {EXAMPLES.map((example) => (
              <button
                key={example.name}
                type="button"
                onClick={() => setDraft({ ...example, options: emptyOptions() })}
              >
                {example.name}
              </button>
            ))}
          </p>
          <div class="field-head">
            <label for="source">Constraint</label>
            <KindChoice
              kind={draft.kind}
              guessed={guessKind(draft.source)}
              onKind={(chosen) => change({ kind: chosen })}
            />
          </div>
          <MarkedField
            id="source"
            value={draft.source}
            rows={14}
            mark={refusedRange(answered, draft.source)}
            isInvalid={error?.status === 400}
            describedBy="refusal"
            placeholder="Paste a JSON Schema, a regex, a grammar in EBNF or Lark, or choices, one on each line."
            onValue={(source) => change({ source })}
          />
          <div id="refusal">{error && <Refusal error={error} />}</div>
          {kind === "json_schema" && <Options options={draft.options} onChange={(options) => change({ options })} />}
          <div class="field-head">
            <label for="text">Text to follow through it</label>
          </div>
          <MarkedField
            id="text"
            value={draft.text}
            rows={4}
            mark={leftRange(answered, draft.text)}
            isRestMuted
            isInvalid={leftRange(answered, draft.text) !== null}
            describedBy="steps"
            placeholder="Type what the model might write."
            onValue={(text) => change({ text })}
          />
          <p id="steps" class={stepsClass(answered)}>
            {sentence || (answer ? "Type a text to see how far it goes." : "")}
          </p>
          {answer && (
            <NextTokens
              next={answer.next}
              vocabSize={about.vocab_size}
              isCut={steps !== null && steps.valid_up_to < [...(answered.question?.text ?? "")].length}
            />
          )}
        </div>
        <div class="constraint-output" aria-busy={answered.isAsking}>
          {!question && <p class="empty">Paste a constraint, or click an example.</p>}
          {question && error && <p class="empty">What it means is shown here once the constraint is accepted.</p>}
          {answer?.svg && (
            <section class="card" aria-labelledby="picture">
              <h2 id="picture">The automaton</h2>
              <Picture
                svg={answer.svg}
                label={`Automaton of the constraint; ${answer.num_states ?? "no end of"} states`}
              />
              <p class="hint">Drag moves it. Click it, then the wheel, plus and minus zoom; 0 shows all.</p>
            </section>
          )}
          {answer && <Findings answer={answer} />}
          {answer && <Enforced enforced={answer.enforced} />}
        </div>
      </div>
    </div>
  );
}

function keptDraft(): Draft {
  const fresh: Draft = { kind: null, source: FIRST.source, text: FIRST.text, options: emptyOptions() };
  try {
    return { ...fresh, ...(JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") as Partial<Draft>) };
  } catch {
    return fresh;
  }
}

function questionOf({ source, text, options }: Draft, kind: ConstraintKind): ConstraintQuestion | null {
  if (source.trim() === "") return null;
  return {
    kind,
    source: kind === "regex" ? source.replace(/\n$/, "") : kind === "choice" ? choicesOf(source) : source,
    text: text === "" ? null : text,
    ...(kind === "json_schema" ? options : {}),
  };
}

/** Where the text leaves the language; one more than its last character is never a place. */
function leftRange({ answer, question }: Answered, text: string): Range | null {
  const steps = answer?.steps;
  if (!steps || question?.text !== text) return null;
  const begin = utf16At(text, steps.valid_up_to);
  return begin < text.length ? { begin, end: characterEnd(text, begin) } : null;
}

/** What the server has refused in the constraint. */
function refusedRange({ error, question }: Answered, source: string): Range | null {
  const isOfThis = typeof question?.source === "string" && question.source.trimEnd() === source.trimEnd();
  return error && isOfThis ? rangeOfError(source, error.pointer, error.message) : null;
}

function stepsClass({ answer, question }: Answered): string {
  const steps = answer?.steps;
  if (!steps) return "steps hint";
  if (steps.valid_up_to < [...(question?.text ?? "")].length) return "steps steps-left";
  return steps.complete ? "steps steps-complete" : "steps";
}

interface KindProps {
  kind: ConstraintKind | null;
  guessed: ConstraintKind;
  onKind: (kind: ConstraintKind | null) => void;
}

function KindChoice({ kind, guessed, onKind }: KindProps) {
  const name = KINDS.find(([one]) => one === guessed)?.[1] ?? guessed;
  return (
    <label class="kind">
      <span class="hint">Kind</span>
      <select
        value={kind ?? ""}
        onChange={(event) => {
          const chosen = KINDS.find(([one]) => one === event.currentTarget.value);
          onKind(chosen ? chosen[0] : null);
        }}
      >
        <option value="">Guessed: {name}</option>
        {KINDS.map(([one, word]) => (
          <option key={one} value={one}>
            {word}
          </option>
        ))}
      </select>
    </label>
  );
}
