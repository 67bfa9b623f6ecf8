// Which tokens of the served model may come next, where the text ends.

import { useState } from "preact/hooks";
import type { ConstraintAnswer } from "../../contract.ts";
import { count, percent } from "../../format.ts";

interface Props {
  next: ConstraintAnswer["next"];
  vocabSize: number;
  /** True if the text has left the language, so that the tokens are those at the place where it did. */
  isCut: boolean;
}

export function NextTokens({ next, vocabSize, isCut }: Props) {
  const [wanted, setWanted] = useState("");
  const shown = next.tokens.filter(({ text, id }) => text.includes(wanted) || String(id) === wanted);
  const share = vocabSize > 0 ? next.count / vocabSize : 0;
  return (
    <section class="card next-tokens" aria-labelledby="next">
      <h2 id="next">What may come next</h2>
      <p>
        <strong>{count(next.count)}</strong> of {count(vocabSize)} tokens ({percent(share)})
        {isCut ? ", at the place where the text left the language." : "."}
      </p>
      {next.tokens.length > 12 && (
        <p>
          <label for="next-filter" class="hint">
            Filter{" "}
          </label>
          <input id="next-filter" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
        </p>
      )}
      <ul class="tokens">
        {shown.map(({ id, text }) => (
          <li key={id}>
            {visible(text)}
            <span class="token-id">{id}</span>
          </li>
        ))}
      </ul>
      {shown.length === 0 && next.tokens.length > 0 && <p class="hint">No token that is listed has this in it.</p>}
      {next.count > next.tokens.length && <p class="hint">The first {count(next.tokens.length)} are listed.</p>}
    </section>
  );
}

/** Blanks and control characters as signs that can be seen. */
export function visible(text: string): string {
  if (text === "") return "(end)";
  return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
}
