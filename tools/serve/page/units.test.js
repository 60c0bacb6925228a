// The page's parts without a browser: conversations in a storage, answers as events, what a request has.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Run, parts, sent } from "../../../llm-demo/src/serve/page/answer.js";
import { Server } from "../../../llm-demo/src/serve/page/server.js";
import { Store, Unkept, empty, title } from "../../../llm-demo/src/serve/page/store.js";

// A storage with room for so many letters.
class Storage {
  constructor(room = 1e6) {
    Object.assign(this, { room, entries: new Map() });
  }
  get length() {
    return this.entries.size;
  }
  key(n) {
    return [...this.entries.keys()][n];
  }
  getItem(key) {
    return this.entries.get(key) ?? null;
  }
  setItem(key, text) {
    const others = [...this.entries].filter(([name]) => name !== key);
    if (others.reduce((sum, [, one]) => sum + one.length, text.length) > this.room) throw Object.assign(new Error(), { name: "QuotaExceededError" });
    this.entries.set(key, text);
  }
  removeItem(key) {
    this.entries.delete(key);
  }
}
const said = (...texts) => texts.map((content, at) => ({ role: at % 2 ? "assistant" : "user", content }));
const conversation = (...texts) => ({ ...empty(), messages: said(...texts) });
// A response of a stream with these pieces.
const stream = (...pieces) => new Response(new ReadableStream({
  start(controller) {
    for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
    controller.close();
  },
}));
const event = (data) => `data: ${JSON.stringify(data)}\n\n`;
const piece = (content, reason = null) => event({ choices: [{ delta: { content }, finish_reason: reason }] });

test("conversations are kept, and those of other programs are left alone", () => {
  const storage = new Storage();
  storage.setItem("other", "x");
  storage.setItem("llm-demo.conversation.bad", "{");
  storage.setItem("llm-demo.conversation.worse", '{"messages": [{"role": "system", "content": 1}]}');
  const store = new Store(storage);
  const [one, two] = [{ ...conversation("a", "b"), changed: 1 }, { ...conversation("c"), changed: 2 }];
  store.keep(one);
  store.keep(two);
  assert.deepEqual(store.all().map(({ id }) => id), [two.id, one.id]);
  assert.deepEqual(new Store(storage).conversation(one.id), { ...one });
  store.remove(two.id);
  assert.equal(store.all().length, 1);
  assert.equal(storage.length, 4);
});

test("what does not fit is kept in memory, and said", () => {
  const storage = new Storage(400);
  const store = new Store(storage);
  const [small, large] = [conversation("a"), conversation("b".repeat(1000))];
  store.keep(small);
  assert.throws(() => store.keep(large), (error) => error instanceof Unkept && error.message.includes("full"));
  assert.equal(store.all().length, 2);
  assert.equal(new Store(storage).all().length, 1);
  large.messages = said("c");
  store.remove(small.id);
  store.keep(large);
  assert.equal(new Store(storage).conversation(large.id).messages[0].content, "c");
  const none = new Store(null);
  assert.throws(() => none.keep(small), Unkept);
  assert.equal(none.all().length, 1);
});

test("a file of conversations is taken whole or not at all", () => {
  const [from, to] = [new Store(new Storage()), new Store(new Storage())];
  from.keep({ ...conversation("a", "b"), title: "T", system: "S" });
  from.keep(conversation("c"));
  const file = from.file(from.all());
  assert.equal(to.take(file), 2);
  assert.equal(to.take(file), 2);
  assert.equal(to.all().length, 4);
  const one = to.all().find(({ title }) => title === "T");
  assert.deepEqual([one.system, one.messages], ["S", said("a", "b")]);
  const wrong = (conversations) => JSON.stringify({ format: "llm-demo conversations", conversations });
  for (const [text, words] of [
    ["{", "no JSON"], ["null", "no conversations"], ["[]", "no conversations"], ['{"format": "x"}', "no conversations"],
    [wrong([conversation("a"), {}]), "conversation 2 of the file is wrong: it has no messages"],
    [wrong([{ messages: [{ role: "system", content: "" }] }]), "message 1 is by nobody"],
    [wrong([{ messages: [{ role: "user", content: 7 }] }]), "message 1 is no text"],
    [wrong([{ messages: [], title: {} }]), "its title is no text"],
  ]) assert.throws(() => to.take(text), (error) => error.message.includes(words), text);
  assert.equal(to.all().length, 4);
  const taken = wrong([{ messages: [{ role: "user", content: "a", evil: 1, stats: { tokens: "x" } }], id: "__proto__", other: 1 }]);
  assert.equal(to.take(taken), 1);
  assert.ok(!JSON.stringify(to.all()).includes("evil"));
});

test("settings that are none are the usual ones", () => {
  const storage = new Storage();
  const store = new Store(storage);
  const usual = { key: "", system: "", theme: "", options: {} };
  for (const text of ["", "null", "[]", '{"key": 1, "theme": "red", "options": {"temperature": 9, "top_k": "1", "evil": 1}}']) {
    storage.setItem("llm-demo.settings", text);
    assert.deepEqual(store.settings(), usual, text);
  }
  const own = { key: "k", system: "s", theme: "dark", options: { temperature: 0, top_k: 3 } };
  store.keepSettings(own);
  assert.deepEqual(store.settings(), own);
});

test("titles, thoughts and what is sent", () => {
  assert.equal(title(conversation()), "New conversation");
  assert.equal(title(conversation("  a\nb")), "a");
  assert.equal(title(conversation("c".repeat(70))).length, 61);
  assert.deepEqual(parts("<think>\na\n</think>\n\nb"), { thought: "a", said: "b" });
  assert.deepEqual(parts("<think>a"), { thought: "a", said: "" });
  assert.deepEqual(parts("a</think>b"), { thought: "a", said: "b" });
  assert.deepEqual(parts("a <think> b"), { thought: "", said: "a <think> b" });
  const one = { ...conversation("<think>", "<think>a</think>b"), system: "S" };
  assert.deepEqual(sent(one), [{ role: "system", content: "S" }, ...said("<think>", "b")]);
});

async function run(response, ...texts) {
  const asked = [];
  const server = new Server(() => "key", async (path, request) => {
    asked.push([path, request]);
    if (response instanceof Error) throw response;
    return response;
  });
  const one = conversation(...texts);
  const answer = new Run(server, one, { temperature: 0 }, () => {});
  return { one, asked, answer, failure: await answer.ended };
}

test("an answer comes in pieces, wherever they are cut", async () => {
  const usage = { prompt_tokens: 5, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } };
  const whole = piece("caf") + piece("\u00e9", "stop") + event({ choices: [], usage }) + "data: [DONE]\n\n";
  for (const size of [1, 3, 1000]) {
    const bytes = [...new TextEncoder().encode(whole)];
    const body = new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(Uint8Array.from(bytes.slice(at, at + size)));
        controller.close();
      },
    });
    const { one, asked, failure } = await run(new Response(body), "a");
    assert.equal(failure, null);
    assert.equal(one.messages[1].content, "caf\u00e9");
    const { prompt, cached, tokens } = one.messages[1].stats;
    assert.deepEqual([prompt, cached, tokens], [5, 1, 2]);
    const [[path, { headers, body: sent }]] = asked;
    assert.deepEqual([path, headers.Authorization], ["v1/chat/completions", "Bearer key"]);
    assert.deepEqual(JSON.parse(sent), { messages: said("a"), temperature: 0, stream: true, stream_options: { include_usage: true } });
  }
});

test("failures say what happened, and lose nothing", async () => {
  const refused = (status, message, code, headers = {}) =>
    new Response(JSON.stringify({ error: { message, code } }), { status, headers });
  for (const [response, kind, words] of [
    [new TypeError("x"), "lost", "cannot be reached"],
    [refused(401, "the key"), "key", "API key"],
    [refused(429, "as many wait", "queue_full", { "retry-after": "7" }), "busy", "busy: as many wait."],
    [refused(503, "the engine failed"), "unavailable", "the engine failed."],
    [refused(400, "it has 9 tokens", "context_length_exceeded"), "long", "too long"],
    [refused(400, "temperature is 9"), "request", "Temperature is 9."],
    [refused(500, "the GPU stopped"), "server", "The GPU stopped."],
    [new Response("<html>", { status: 502 }), "server", "answered 502"],
  ]) {
    const { one, failure } = await run(response, "a");
    assert.equal(failure.kind, kind, failure.message);
    assert.ok(failure.message.includes(words), failure.message);
    assert.deepEqual(one.messages, said("a"));
    if (kind === "busy") assert.equal(failure.seconds, 7);
  }
  for (const [rest, kind] of [["", "cut"], ["data: {\n\n", "cut"], [event({ error: { message: "the server is ending" } }), "server"]]) {
    const { one, failure } = await run(stream(piece("b"), rest), "a");
    assert.equal(failure.kind, kind);
    assert.deepEqual([one.messages[1].content, one.messages[1].note], ["b", "Incomplete."]);
  }
  const long = await run(stream(piece("b", "length"), "data: [DONE]\n\n"), "a");
  assert.ok(long.one.messages[1].note.includes("cut"));
});
