import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { addTurn, newConversation, newReply, type Reply, type UserTurn } from "./conversation.ts";
import { conversationOf } from "./stored.ts";

function talk() {
  const made = newConversation(null);
  const asked = addTurn<UserTurn>(made, { role: "user", parent: "", text: "Hi", documents: [] });
  const reply = addTurn<Reply>(made, newReply(asked.id, 1, { format: "", tools: "" }));
  return { made, asked, reply };
}

test("what was stored is what is read", () => {
  const { made } = talk();
  deepEqual(conversationOf(JSON.stringify(made)), made);
  const { isExample: _, ...older } = { ...made, format: { kind: "none", json_schema: "{}", regex: "" } };
  deepEqual(conversationOf(JSON.stringify(older)), { ...made, format: { ...made.format, json_schema: "{}" } });
});

test("anything else is left alone", () => {
  const { made, asked, reply } = talk();
  const broken: unknown[] = [
    null,
    5,
    [],
    "x",
    { ...made, id: "" },
    { ...made, turns: null },
    { ...made, turns: { a: { role: "user", id: "b", parent: "", text: "", documents: [] } } },
    { ...made, turns: { ...made.turns, [asked.id]: { ...asked, documents: null } } },
    { ...made, turns: { ...made.turns, [asked.id]: { ...asked, role: "system" } } },
    { ...made, turns: { ...made.turns, [reply.id]: { ...reply, answers: [] } } },
    { ...made, turns: { ...made.turns, [reply.id]: { ...reply, picked: 7 } } },
    { ...made, chosen: { [asked.id]: asked.id } },
    { ...made, chosen: { "": "nowhere" } },
    { ...made, sampling: {} },
    { ...made, format: { kind: "xml", json_schema: "", regex: "" } },
    { ...made, changedAt: "now" },
  ];
  for (const each of broken) {
    equal(conversationOf(JSON.stringify(each)), null);
  }
  equal(conversationOf("{"), null);
});
