// A text field in which one place is marked: the text is drawn again below the field, with the mark.

import { useRef } from "preact/hooks";
import type { Range } from "./places.ts";

interface Props {
  id: string;
  value: string;
  rows: number;
  mark: Range | null;
  /** What is after the mark is muted. */
  isRestMuted?: boolean;
  isInvalid: boolean;
  describedBy: string;
  placeholder?: string;
  onValue: (value: string) => void;
}

export function MarkedField(props: Props) {
  const { id, value, rows, mark, isRestMuted = false, isInvalid, describedBy, placeholder = "", onValue } = props;
  const below = useRef<HTMLDivElement>(null);
  return (
    <div class="marked-field">
      <div ref={below} class="marked-below" aria-hidden="true">
        {mark ? (
          <>
            {value.slice(0, mark.begin)}
            <mark>{value.slice(mark.begin, mark.end) || " "}</mark>
            <span class={isRestMuted ? "muted" : ""}>{value.slice(mark.end)}</span>
          </>
        ) : (
          value
        )}
        {"\n"}
      </div>
      <textarea
        id={id}
        rows={rows}
        value={value}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        placeholder={placeholder}
        aria-invalid={isInvalid}
        aria-describedby={describedBy}
        onInput={(event) => onValue(event.currentTarget.value)}
        onScroll={(event) => {
          if (below.current) {
            below.current.scrollTop = event.currentTarget.scrollTop;
            below.current.scrollLeft = event.currentTarget.scrollLeft;
          }
        }}
      />
    </div>
  );
}
