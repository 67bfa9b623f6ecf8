// What drafted tokens, and how many of them were right.

import type { About, Now } from "../../contract.ts";
import { count, percent } from "../../format.ts";

interface Props {
  about: About;
  now: Now;
}

/** Nothing where nothing was drafted and no draft model is there. */
export function DraftsCard({ about, now }: Props) {
  if (now.drafts.length === 0 && about.draft_model === null) return null;
  return (
    <section class="card" aria-labelledby="drafts">
      <h2 id="drafts">Drafts</h2>
      <p>{draftsSentence(about, now)}</p>
      {now.drafts.length > 0 && (
        <table class="shares">
          <caption>Tokens drafted since the start, and how many of them were right</caption>
          <tbody>
            {now.drafts.map(({ by, drafted, right }) => (
              <tr key={by}>
                <th scope="row">{sourceName(by, about.draft_model)}</th>
                <td class="share-bar">
                  <span class="in-use" style={{ width: `${(100 * right) / drafted}%` }} />
                </td>
                <td class="number">
                  {percent(right / drafted)} of {count(drafted)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

const SOURCES: Record<string, string> = {
  forced: "forced by a constraint",
  habit: "habit under a constraint",
  lookup: "repeated text",
  mtp: "the model's own layer",
};

function sourceName(by: string, draftModel: string | null): string {
  return by === "model" ? `draft model ${draftModel ?? ""}`.trim() : (SOURCES[by] ?? by);
}

/** What drafts, in a sentence. */
export function draftsSentence({ draft_model: name }: About, { draft_model_rests: rests }: Now): string {
  if (name === null) return "No draft model; drafts come from constraints and from what texts repeat.";
  const subject = name === "mtp" ? "The model's own layer" : `The draft model ${name}`;
  return rests
    ? `${subject} rests: its drafts would take more time than they save.`
    : `${subject} drafts where constraints and repeated text do not.`;
}
