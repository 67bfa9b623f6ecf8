// From a conversation with branches to the body of a request.

import assert from "node:assert/strict";
import { test } from "node:test";
import { addChunk } from "./chunks.ts";
import {
  addTurn,
  branchesAt,
  keyAfter,
  newConversation,
  newReply,
  pathBefore,
  pathOf,
  type Reply,
  type ToolsTurn,
  type UserTurn,
} from "./conversation.ts";
import { chatBody, choicesOf, faultOfFormat, faultOfNumber, formatOf, readJson, readTools } from "./request.ts";

function talk() {
  const conversation = newConversation(null);
  const say = (parent: string, text: string) =>
    addTurn<UserTurn>(conversation, { role: "user", parent, text, documents: [] });
  const answer = (parent: string, ...contents: string[]) => {
    const reply = addTurn<Reply>(conversation, newReply(parent, contents.length, { format: "", tools: "" }));
    contents.forEach((content, place) => {
      Object.assign(reply.answers[place] ?? {}, { content });
    });
    return reply;
  };
  return { conversation, say, answer };
}

test("a branch has the turns before it, with the answer that it goes on from", () => {
  const { conversation, say, answer } = talk();
  const first = say("", "a");
  const reply = answer(first.id, "b0", "b1");
  reply.picked = 1;
  const second = say(keyAfter(reply), "c");
  answer(second.id, "d");
  const edited = say(second.parent, "e");
  const last = answer(edited.id, "");
  assert.deepEqual(branchesAt(conversation, edited), [second, edited]);
  assert.deepEqual(pathOf(conversation), [first, reply, edited, last]);

  reply.picked = 0; // what was asked after the other answer still goes on from it
  const { messages } = chatBody(conversation, pathBefore(conversation, last)) as { messages: { content: string }[] };
  assert.deepEqual(
    messages.map(({ content }) => content),
    ["a", "b1", "e"],
  );
  conversation.chosen[second.parent] = second.id;
  reply.picked = 1;
  assert.equal(pathOf(conversation)[2], second);
});

test("documents, calls, results and settings are in the body", () => {
  const { conversation, say, answer } = talk();
  const turn = say("", "read");
  turn.documents = [{ name: 'a"b.txt', text: "text\n\n" }];
  const reply = answer(turn.id, "");
  reply.answers[0]?.calls.push({ id: "1", name: "f", arguments: "{}" });
  const results: Omit<ToolsTurn, "id"> = {
    role: "tools",
    parent: keyAfter(reply),
    results: [{ id: "1", name: "f", content: "r" }],
  };
  const after = addTurn<ToolsTurn>(conversation, results);
  conversation.system = "s";
  conversation.tools = '{"name": "f"}';
  Object.assign(conversation.sampling, { temperature: "0", top_p: "2", seed: "7", n: "2" });
  const last = answer(after.id, "");
  const body = chatBody(conversation, pathBefore(conversation, last));
  assert.deepEqual(body.messages, [
    { role: "system", content: "s" },
    { role: "user", content: '<document name="a\'b.txt">\ntext\n</document>\n\nread' },
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
    },
    { role: "tool", tool_call_id: "1", content: "r" },
  ]);
  const { temperature, top_p, seed, n, tools } = body;
  assert.deepEqual([temperature, top_p, seed, n], [0, undefined, 7, 2]);
  assert.deepEqual(tools, [{ type: "function", function: { name: "f" } }]);
});

test("each format is a field of the request", () => {
  const format = { ...newConversation(null).format, regex: "a+", grammar: "root ::= a", choice: "yes\n no \n\n" };
  assert.deepEqual(formatOf(format), {});
  assert.deepEqual(formatOf({ ...format, kind: "regex" }), { structured_outputs: { regex: "a+" } });
  assert.deepEqual(formatOf({ ...format, kind: "grammar" }), { structured_outputs: { grammar: "root ::= a" } });
  assert.deepEqual(formatOf({ ...format, kind: "choice" }), { structured_outputs: { choice: ["yes", " no "] } });
  assert.deepEqual(choicesOf('["a", "b\\n"]'), ["a", "b\n"]);
  assert.deepEqual(choicesOf('["a", 1]'), ['["a", 1]'], "no choices in JSON, so a line");
});

test("what an example set is not for the next conversation, what was typed is", () => {
  const conversation = newConversation(null);
  Object.assign(conversation, { system: "s", model: "m" });
  conversation.format.regex = "a";
  conversation.format.kind = "regex";
  const next = newConversation(conversation);
  assert.deepEqual([next.system, next.format.regex, next.format.kind, next.model], ["s", "a", "none", "m"]);
  const other = newConversation({ ...conversation, isExample: true });
  assert.deepEqual([other.system, other.format.regex, other.model, other.isExample], ["", "", "m", false]);
});

test("a call of a tool comes in parts", () => {
  const { conversation, answer } = talk();
  const reply = answer("", "");
  const call = (id: string | undefined, name: string, part: string) => ({
    choices: [
      { index: 0, delta: { tool_calls: [{ index: 0, ...(id ? { id } : {}), function: { name, arguments: part } }] } },
    ],
  });
  for (const chunk of [call("1", "wea", '{"ci'), call(undefined, "ther", 'ty":1}')]) assert.ok(addChunk(reply, chunk));
  assert.deepEqual(reply.answers[0]?.calls, [{ id: "1", name: "weather", arguments: '{"city":1}' }]);
  assert.ok(!addChunk(reply, { choices: [] }) && conversation.numTurns === 1);
});

test("what is typed is checked", () => {
  assert.match(readJson('{\n"a" 1}').fault ?? "", /line 2, column 5/);
  assert.equal(readTools("").fault, null);
  assert.match(readTools("[{}]").fault ?? "", /"name"/);
  const format = { ...newConversation(null).format, kind: "json_schema", json_schema: "{" } as const;
  assert.match(faultOfFormat(format) ?? "", /Not JSON yet/);
  assert.equal(faultOfFormat({ ...format, kind: "regex", regex: "a" }), null);
  assert.equal(faultOfNumber("n", "9"), "from 1 to 8");
  assert.equal(faultOfNumber("seed", "1.5"), "a whole number");
  assert.equal(faultOfNumber("temperature", ""), null);
});
