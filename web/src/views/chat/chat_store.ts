// The conversations of this browser, the one that is shown, and the requests that are under way.
// Kept in localStorage, one entry per conversation, without what is known of single tokens: that is too much for it.

import { type Api, asApiError, isAborted, problemOf } from "../../api.ts";
import { keep, kept, keptKeys } from "../../storage.ts";
import { Store } from "../../store.ts";
import { addChunk, type Chunk, countsOf } from "./chunks.ts";
import {
  addTurn,
  type Conversation,
  keyAfter,
  newConversation,
  newReply,
  pathBefore,
  pathOf,
  type Reply,
  type ToolResult,
  type ToolsTurn,
  type Turn,
  type UserTurn,
} from "./conversation.ts";
import { askedOf, chatBody, numAnswers } from "./request.ts";
import { conversationOf } from "./stored.ts";

const PREFIX = "phloem.chat.1."; // with the version of what is stored
const TITLE_CHARS = 60;

export class ChatStore {
  /** Tells of every change. */
  readonly changes = new Store(0);
  readonly conversations: Conversation[];
  current: Conversation;
  /** True if the browser took nothing more. */
  isStorageFull = false;
  private readonly underWay = new Map<Reply, AbortController>();
  private frame = 0;
  private saving = 0;

  constructor(
    private readonly api: Api,
    private readonly announce: (sentence: string) => void,
  ) {
    this.conversations = storedConversations();
    this.current = this.conversations[0] ?? this.begun();
    window.addEventListener("pagehide", () => this.save());
  }

  /** To be called after each change of a conversation or of its draft. */
  changed(): void {
    window.clearTimeout(this.saving);
    this.saving = window.setTimeout(() => this.save(), 300);
    this.changes.set(this.changes.value + 1);
  }

  begin(): void {
    const empty = this.conversations.find(({ numTurns, draft }) => numTurns === 0 && !draft);
    this.current = empty ?? this.begun();
    this.changed();
  }

  show(conversation: Conversation): void {
    this.save();
    this.current = conversation;
    this.changed();
  }

  rename(conversation: Conversation, title: string): void {
    conversation.title = title.trim() || conversation.title;
    this.store(conversation);
    this.changed();
  }

  remove(conversation: Conversation): void {
    for (const [reply, abort] of this.underWay) {
      if (conversation.turns[reply.id] === reply) {
        abort.abort();
      }
    }
    this.conversations.splice(this.conversations.indexOf(conversation), 1);
    keep("local", PREFIX + conversation.id, null);
    if (this.current === conversation) {
      this.current = this.conversations[0] ?? this.begun();
    }
    this.changed();
  }

  /** Sends what is drafted, after the path that is shown. */
  send(): void {
    const { draft, documents } = this.current;
    const last = pathOf(this.current).at(-1);
    this.ask(last ? keyAfter(last) : "", draft.trim(), documents);
    this.current.draft = "";
    this.current.documents = [];
    this.changed();
  }

  /** A branch beside `turn`, with another text. */
  edit(turn: UserTurn, text: string): void {
    this.ask(turn.parent, text, turn.documents);
  }

  /** Another reply to the same turns. */
  retry(reply: Reply): void {
    this.reply(reply.parent);
  }

  sendResults(reply: Reply, results: ToolResult[]): void {
    const turn: Omit<ToolsTurn, "id"> = { role: "tools", parent: keyAfter(reply), results };
    this.reply(addTurn<ToolsTurn>(this.current, turn).id);
  }

  stop(reply: Reply): void {
    this.underWay.get(reply)?.abort();
  }

  choose(turn: Turn): void {
    this.current.chosen[turn.parent] = turn.id;
    this.changed();
  }

  pick(reply: Reply, answer: number): void {
    reply.picked = answer;
    this.changed();
  }

  private ask(parent: string, text: string, documents: UserTurn["documents"]): void {
    const turn: Omit<UserTurn, "id"> = { role: "user", parent, text, documents };
    this.current.title ||= this.freeTitle(titleFrom(text || documents[0]?.name || ""));
    this.reply(addTurn<UserTurn>(this.current, turn).id);
  }

  /** The title, with a number if another conversation has it. */
  private freeTitle(title: string): string {
    const titles = new Set(this.conversations.map((conversation) => conversation.title));
    let free = title;
    for (let number = 2; free && titles.has(free); number += 1) {
      free = `${title} (${number})`;
    }
    return free;
  }

  private reply(parent: string): void {
    const conversation = this.current;
    const reply = addTurn<Reply>(conversation, newReply(parent, numAnswers(conversation), askedOf(conversation)));
    this.run(conversation, reply);
    this.changed();
  }

  private async run(conversation: Conversation, reply: Reply): Promise<void> {
    const abort = new AbortController();
    const began = performance.now();
    this.underWay.set(reply, abort);
    try {
      const body = chatBody(conversation, pathBefore(conversation, reply));
      for await (const chunk of this.api.stream("v1/chat/completions", body, abort.signal)) {
        if (addChunk(reply, chunk as Chunk)) {
          reply.firstTokenMs ??= performance.now() - began;
        }
        this.draw();
      }
      reply.state = "done";
      this.announce(`The answer is complete: ${reply.answers[0]?.content ?? ""}`);
    } catch (error) {
      reply.state = isAborted(error) || abort.signal.aborted ? "stopped" : "failed";
      reply.problem = reply.state === "failed" ? problemOf(asApiError(error)) : null;
      this.announce(reply.state === "stopped" ? "The answer was stopped." : "");
    }
    reply.counts = countsOf(reply);
    reply.totalMs = performance.now() - began;
    this.underWay.delete(reply);
    if (this.conversations.includes(conversation)) {
      this.store(conversation);
    }
    this.changed();
  }

  /** Tells of a change once per drawn frame. */
  private draw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.changes.set(this.changes.value + 1);
    });
  }

  private begun(): Conversation {
    const conversation = newConversation(this.current ?? null);
    this.conversations.unshift(conversation);
    return conversation;
  }

  private save(): void {
    window.clearTimeout(this.saving);
    this.store(this.current);
  }

  private store(conversation: Conversation): void {
    if (conversation.numTurns === 0 && !conversation.draft) {
      return;
    }
    const turns = Object.fromEntries(Object.entries(conversation.turns).map(([id, turn]) => [id, keptOf(turn)]));
    this.isStorageFull = !keep("local", PREFIX + conversation.id, JSON.stringify({ ...conversation, turns }));
  }
}

function titleFrom(text: string): string {
  const [line = ""] = text.split("\n");
  return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS - 1).replace(/[\s.,;:!?]+$/, "")}…` : line;
}

function keptOf(turn: Turn): Turn {
  if (turn.role !== "reply") {
    return turn;
  }
  const state = turn.state === "streaming" ? "stopped" : turn.state;
  return { ...turn, state, promptPieces: [], answers: turn.answers.map((answer) => ({ ...answer, tokens: [] })) };
}

/** Last changed first. An entry that cannot be read is left alone. */
function storedConversations(): Conversation[] {
  const found: Conversation[] = [];
  for (const key of keptKeys("local", PREFIX)) {
    const conversation = conversationOf(kept("local", key) ?? "");
    if (conversation) {
      found.push(conversation);
    }
  }
  return found.sort((one, other) => other.changedAt - one.changedAt);
}
