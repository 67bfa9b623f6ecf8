// Which of the turns at one place is shown.

import type { ChatStore } from "./chat_store.ts";
import { branchesAt, type Turn } from "./conversation.ts";

export function Branches({ chats, turn, noun }: { chats: ChatStore; turn: Turn; noun: string }) {
  const branches = branchesAt(chats.current, turn);
  const place = branches.indexOf(turn);
  if (branches.length < 2) {
    return null;
  }
  const step = (to: number, sign: string, words: string) => {
    const target = branches[to];
    return (
      <button
        type="button"
        class="quiet icon"
        disabled={!target}
        aria-label={words}
        onClick={() => target && chats.choose(target)}
      >
        {sign}
      </button>
    );
  };
  return (
    <fieldset class="branches">
      <legend class="out-of-sight">{`Versions of this ${noun}`}</legend>
      {step(place - 1, "‹", `Earlier ${noun}`)}
      <span class="branches-place">
        {place + 1} of {branches.length}
      </span>
      {step(place + 1, "›", `Later ${noun}`)}
    </fieldset>
  );
}
