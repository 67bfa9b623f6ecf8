// The options of a JSON Schema: the order of keys, keys that it does not name, and white space.

import type { ConstraintQuestion } from "../../contract.ts";

export type QuestionOptions = Pick<ConstraintQuestion, "key_order" | "extra_keys" | "whitespace">;

export function emptyOptions(): QuestionOptions {
  return {};
}

const CHOICES: { name: keyof QuestionOptions; label: string; values: [string, string][] }[] = [
  {
    name: "key_order",
    label: "Order of keys",
    values: [
      ["schema", "that of the schema"],
      ["any", "any"],
    ],
  },
  {
    name: "extra_keys",
    label: "Keys without a name",
    values: [
      ["schema", "as the schema says"],
      ["never", "never"],
    ],
  },
  {
    name: "whitespace",
    label: "Whitespace",
    values: [
      ["compact", "compact: none"],
      ["spaced", "spaced: after , and :"],
      ["flexible", "flexible: any"],
    ],
  },
];

export function Options({
  options,
  onChange,
}: {
  options: QuestionOptions;
  onChange: (options: QuestionOptions) => void;
}) {
  return (
    <div class="options">
      {CHOICES.map(({ name, label, values }) => (
        <label key={name}>
          <span class="hint">{label}</span>
          <select
            value={options[name] ?? ""}
            onChange={(event) => {
              const { [name]: _, ...others } = options;
              const { value } = event.currentTarget;
              onChange((value === "" ? others : { ...others, [name]: value }) as QuestionOptions);
            }}
          >
            <option value="">server's default</option>
            {values.map(([value, word]) => (
              <option key={value} value={value}>
                {word}
              </option>
            ))}
          </select>
        </label>
      ))}
    </div>
  );
}
