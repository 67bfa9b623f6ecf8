// Text as its tokens. One tab stop; arrows move; hover or focus tells how a token came about.

import { Component } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, percent } from "../../format.ts";
import type { AnswerToken } from "./conversation.ts";
import { KINDS, type Kind } from "./kinds.tsx";
import "./tokens.css";

export interface ShownToken {
  text: string;
  kind: Kind | null;
  /** What is known of it; null for tokens of the prompt. */
  detail: AnswerToken | null;
}

export function ofAnswer(token: AnswerToken): ShownToken {
  return { text: token.text, kind: token.how, detail: token };
}

/** The pieces of a prompt, of which the first `numCached` were cached. */
export function ofPrompt(pieces: string[], numCached: number): ShownToken[] {
  return pieces.map((text, place) => ({ text, kind: place < numCached ? "cached" : null, detail: null }));
}

/** What a token looks like: white space that would not be seen has a sign. */
export function visible(text: string): string {
  const shown = text.replaceAll("\r", "␍").replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
  return shown || "∅";
}

function words({ text, kind, detail }: ShownToken): string {
  const parts = [JSON.stringify(text), kind ?? "computed"];
  if (detail?.logprob != null) {
    parts.push(`probability ${percent(Math.exp(detail.logprob))}`);
  }
  if (detail?.allowed != null) {
    parts.push(`${count(detail.allowed)} allowed`);
  }
  return parts.join(", ");
}

interface TokenProps {
  token: ShownToken;
  place: number;
  isStop: boolean;
}

/** A class, so that of a long answer only new tokens are drawn. */
class Token extends Component<TokenProps> {
  override shouldComponentUpdate(next: TokenProps): boolean {
    return next.token !== this.props.token || next.isStop !== this.props.isStop;
  }

  override render({ token, place, isStop }: TokenProps) {
    return (
      <span
        role="option"
        aria-selected={isStop}
        aria-label={words(token)}
        tabIndex={isStop ? 0 : -1}
        class={`run-token ${token.kind ?? ""}`}
        data-place={place}
      >
        {visible(token.text)}
      </span>
    );
  }
}

interface TokensProps {
  label: string;
  tokens: ShownToken[];
}

/** `tokens` must only grow, so that those that are drawn stay. */
export function Tokens({ label, tokens }: TokensProps) {
  const [stop, setStop] = useState(0);
  const [told, setTold] = useState<{ place: number; at: HTMLElement } | null>(null);
  const list = useRef<HTMLDivElement>(null);
  const shown = useRef<ShownToken[]>([]);
  if (shown.current[0]?.detail !== tokens[0]?.detail || shown.current.length > tokens.length) {
    shown.current = [];
  }
  for (let place = shown.current.length; place < tokens.length; place += 1) {
    shown.current.push(tokens[place] as ShownToken);
  }

  const tell = (target: EventTarget | null) => {
    const at = target instanceof HTMLElement ? target.closest<HTMLElement>("[data-place]") : null;
    setTold(at ? { place: Number(at.dataset.place), at } : null);
  };
  const move = (event: KeyboardEvent) => {
    const place = placeAfterKey(event.key, stop, tokens.length);
    if (event.key === "Escape") {
      setTold(null);
    }
    if (place !== null) {
      event.preventDefault();
      setStop(place);
      (list.current?.children[place] as HTMLElement | undefined)?.focus();
    }
  };
  const token = told && tokens[told.place];
  const first = shown.current[0];
  const options = useMemo(
    () => shown.current.map((each, at) => <Token key={`${at}`} token={each} place={at} isStop={at === stop} />),
    [first, tokens.length, stop],
  );
  return (
    <div class="tokens-frame">
      {/* biome-ignore lint/a11y/useKeyWithMouseEvents: focusin is what bubbles */}
      <div
        ref={list}
        class="token-run"
        role="listbox"
        aria-label={label}
        aria-orientation="horizontal"
        tabIndex={-1}
        onKeyDown={move}
        onMouseOver={(event) => tell(event.target)}
        onMouseLeave={() => setTold(null)}
        onFocusIn={(event) => {
          tell(event.target);
          const at = (event.target as HTMLElement).dataset.place;
          if (at !== undefined) {
            setStop(Number(at));
          }
        }}
        onFocusOut={() => setTold(null)}
      >
        {options}
      </div>
      {told && token && <TokenCard token={token} at={told.at} />}
    </div>
  );
}

function placeAfterKey(key: string, place: number, length: number): number | null {
  const places: Record<string, number> = {
    ArrowRight: place + 1,
    ArrowDown: place + 1,
    ArrowLeft: place - 1,
    ArrowUp: place - 1,
    Home: 0,
    End: length - 1,
  };
  const next = places[key];
  return next === undefined ? null : Math.max(0, Math.min(length - 1, next));
}

/** What is known of the token at the element `at`, under it or above. */
function TokenCard({ token, at }: { token: ShownToken; at: HTMLElement }) {
  const card = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const box = card.current;
    if (box) {
      const place = at.getClientRects()[0] ?? at.getBoundingClientRect();
      const left = Math.min(place.left, window.innerWidth - box.offsetWidth - 8);
      const under = place.bottom + 6;
      const isUnder = under + box.offsetHeight < window.innerHeight;
      box.style.left = `${Math.max(8, left)}px`;
      box.style.top = `${isUnder ? under : Math.max(8, place.top - box.offsetHeight - 6)}px`;
    }
  });
  const { kind, detail } = token;
  return (
    <div class="token-card" ref={card} aria-hidden="true">
      <p class="token-card-title">
        <code>{JSON.stringify(token.text)}</code> <span class={`kind-name ${kind ?? ""}`}>{kind ?? "computed"}</span>
      </p>
      <p class="hint">{kind ? KINDS[kind] : "A token of the prompt that was computed for this request."}</p>
      {detail?.allowed != null && (
        <p class="hint">
          The constraint allowed {count(detail.allowed)} {detail.allowed === 1 ? "token" : "tokens"} here.
        </p>
      )}
      {detail && detail.top.length > 0 && <Alternatives detail={detail} />}
    </div>
  );
}

function Alternatives({ detail }: { detail: AnswerToken }) {
  const isAmong = detail.top.some(({ text, logprob }) => text === detail.text && logprob === detail.logprob);
  const rows = isAmong ? detail.top : [{ text: detail.text, logprob: detail.logprob ?? -Infinity }, ...detail.top];
  return (
    <table class="alternatives">
      <tbody>
        {rows.map(({ text, logprob }, place) => {
          const isThis = text === detail.text && logprob === detail.logprob;
          return (
            <tr key={`${place}`} class={isThis ? "is-this" : ""}>
              <th scope="row">
                <code>{JSON.stringify(text)}</code>
              </th>
              <td class="alternative-bar">
                <span style={{ width: `${100 * Math.exp(logprob)}%` }} />
              </td>
              <td class="alternative-chance">{percent(Math.exp(logprob))}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
