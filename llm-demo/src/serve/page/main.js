// The page: its parts, and what people do with them.

import { Run } from "./answer.js";
import { at, button, download, element } from "./dom.js";
import { Meter } from "./meter.js";
import { Server } from "./server.js";
import { Settings, colors } from "./settings.js";
import { Store, Unkept, empty, title } from "./store.js";
import { Thread } from "./thread.js";

const RETRY = 3000;
const NOTICE = 8000;

const store = new Store(storage());
let settings = store.settings();
const server = new Server(() => settings.key);
const meter = new Meter(server);
// Answers that are being written, and failures of those that are not, by conversations.
const runs = new Map();
const failures = new Map();
let current = null;
let model = "";

const thread = new Thread(at("log"), at("scroll"), at("down"), {
  regenerate: (from) => goOn(current.messages.slice(0, from), "The answer before is gone."),
  edit,
  retry,
  settings: () => dialog.open(settings, current.system, "key"),
  begin,
});
const dialog = new Settings((chosen, system) => {
  const isOther = chosen.key !== settings.key;
  settings = chosen;
  current.system = system;
  keepAll(() => store.keepSettings(settings));
  if (current.messages.length) keep(current);
  if (isOther && failures.get(current.id)?.kind === "key") failures.delete(current.id);
  draw();
  connect();
});

function storage() {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

// A line that goes away, with something to do about it.
let noticing;
function notice(text, label, act) {
  clearTimeout(noticing);
  const hide = () => (at("notice").hidden = true);
  const parts = [element("span", {}, text)];
  if (act) {
    parts.push(button(label, label, () => {
      hide();
      act();
    }));
  }
  at("notice").replaceChildren(...parts);
  at("notice").hidden = false;
  noticing = setTimeout(hide, NOTICE);
}

function keepAll(work) {
  try {
    work();
  } catch (error) {
    notice(error.message, ...(error instanceof Unkept ? ["Export all", exportAll] : []));
  }
}

function keep(conversation) {
  conversation.changed = Date.now();
  keepAll(() => store.keep(conversation));
}

// The conversation, its run, and the list.
function draw() {
  const run = runs.get(current.id);
  thread.show(current, run, failures.get(current.id), model);
  at("title").textContent = title(current);
  document.title = current.messages.length ? `${title(current)} - llm-demo` : "llm-demo";
  at("send").hidden = Boolean(run);
  at("stop").hidden = !run;
  at("more").hidden = current.messages.length === 0;
  meter.speed(run);
  meter.show(current, at("text").value, run?.pieces);
  drawList();
}

function drawList() {
  const all = store.all().map((one) => (one.id === current.id ? current : runs.get(one.id)?.conversation ?? one));
  at("list").replaceChildren(...all.map((one) => {
    const open = element("button", { type: "button", className: runs.has(one.id) ? "running" : "" }, title(one));
    if (one.id === current.id) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => choose(one));
    return element("li", {}, open);
  }));
  at("export-all").disabled = all.length === 0;
}

function choose(conversation) {
  current = conversation;
  thread.follows = true;
  listing(false);
  draw();
  if (!matchMedia("(pointer: coarse)").matches) at("text").focus();
}

function begin() {
  choose(empty(settings.system));
}

// Asks again with other messages; `lost` says what is gone by that, if something is.
function goOn(messages, lost) {
  const conversation = current;
  const before = conversation.messages;
  conversation.messages = messages;
  answer(conversation);
  if (!lost) return;
  notice(lost, "Undo", async () => {
    const run = runs.get(conversation.id);
    run?.stop();
    await run?.ended;
    conversation.messages = before;
    failures.delete(conversation.id);
    keep(conversation);
    choose(conversation);
  });
}

// Asks again after a failure; half an answer is none.
function retry() {
  const { messages } = current;
  goOn(messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages, "");
}

function edit(index, text) {
  const { messages } = current;
  if (messages[index].role === "user") {
    const isLast = messages.length === index + 1;
    const lost = isLast ? "" : "The message is changed, and what followed is gone.";
    if (text.trim()) goOn([...messages.slice(0, index), { role: "user", content: text }], lost);
    return;
  }
  // Counts of before are of another text.
  current.messages = messages.map((one, at) => (at < index ? one : { ...one, stats: undefined }));
  current.messages[index].content = text;
  keep(current);
  draw();
}

async function answer(conversation) {
  if (runs.has(conversation.id)) return;
  failures.delete(conversation.id);
  let isDrawn = true;
  const run = new Run(server, conversation, settings.options, () => {
    if (!isDrawn || current !== conversation) return;
    isDrawn = false;
    requestAnimationFrame(() => {
      isDrawn = true;
      if (current !== conversation || !runs.has(conversation.id)) return;
      thread.grow(run.message);
      meter.speed(run);
      meter.show(conversation, "", run.pieces);
    });
  });
  runs.set(conversation.id, run);
  keep(conversation);
  thread.follows = true;
  draw();
  at("text").focus();
  say("The model is writing.");
  const failure = await run.ended;
  runs.delete(conversation.id);
  if (failure) failures.set(conversation.id, failure);
  if (store.conversation(conversation.id)) keep(conversation);
  if (current === conversation) draw();
  else drawList();
  say(failure ? "" : run.message.note ?? "The answer is complete.");
}

// For those who hear the page.
function say(text) {
  at("announce").textContent = text;
}

function send() {
  const text = at("text").value;
  if (runs.has(current.id) || !text.trim()) return;
  at("text").value = "";
  grow();
  const last = current.messages.at(-1);
  // Templates want the roles in turns: what had no answer and this are one message.
  if (last?.role === "user") current.messages[current.messages.length - 1] = { role: "user", content: `${last.content}\n\n${text}` };
  else current.messages.push({ role: "user", content: text });
  answer(current);
}

// The field is as high as its text.
function grow() {
  at("text").style.height = "auto";
  at("text").style.height = `${at("text").scrollHeight}px`;
}

function listing(isOpen) {
  document.body.classList.toggle("listing", isOpen);
  at("menu").setAttribute("aria-expanded", String(isOpen));
  if (isOpen) at("new").focus();
}

function remove() {
  const gone = current;
  runs.get(gone.id)?.stop();
  store.remove(gone.id);
  begin();
  notice(`“${title(gone)}” is deleted.`, "Undo", () => {
    keepAll(() => store.keep(gone));
    choose(gone);
  });
}

function exportAll() {
  download("llm-demo-conversations.json", store.file(store.all()));
}

async function take(file) {
  if (!file) return;
  try {
    const count = store.take(await file.text());
    notice(count === 1 ? "A conversation is imported." : `${count} conversations are imported.`);
  } catch (error) {
    notice(error.message);
  }
  drawList();
}

// Asks for the model's properties until there are some.
let connecting;
async function connect() {
  clearTimeout(connecting);
  try {
    const health = await server.health();
    if (health.status !== "ok") throw new Error(unhealthy(health));
    const props = await server.properties();
    model = props.model_alias;
    at("model").textContent = model;
    meter.context = props.default_generation_settings.n_ctx;
    dialog.usual(props.default_generation_settings.params);
    const isReady = props.chat_template !== null;
    banner(isReady ? "" : "The model has no template of conversations: start the server with --template FILE.");
    if (!current.messages.length || !runs.has(current.id)) draw();
  } catch (error) {
    if (error.kind === "key") return banner(error.message, "Enter the key", () => dialog.open(settings, current.system, "key"));
    banner(error.message);
    connecting = setTimeout(connect, RETRY);
  }
}

function unhealthy({ status, reason }) {
  if (status === "loading") return "The model is being loaded.";
  return status === "ending" ? "The server is ending." : `The model's engine failed: ${reason ?? status}`;
}

function banner(text, label, act) {
  at("banner").replaceChildren(element("span", {}, text), ...(act ? [button(label, label, act)] : []));
  at("banner").hidden = !text;
}

function keyboard(event) {
  const isText = event.target === at("text");
  if (event.key === "Enter" && isText && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
    event.preventDefault();
    send();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open], :popover-open")) {
    if (document.body.classList.contains("listing")) {
      listing(false);
      at("menu").focus();
    } else {
      runs.get(current.id)?.stop();
    }
  }
}

function wire() {
  const on = (id, event, act) => at(id).addEventListener(event, act);
  on("form", "submit", (event) => {
    event.preventDefault();
    send();
  });
  on("text", "input", () => {
    grow();
    meter.show(current, at("text").value, runs.get(current.id)?.pieces);
  });
  on("stop", "click", () => runs.get(current.id)?.stop());
  on("new", "click", begin);
  on("menu", "click", () => listing(true));
  on("hide", "click", () => listing(false));
  on("shade", "click", () => listing(false));
  on("settings-open", "click", () => dialog.open(settings, current.system));
  on("actions", "click", () => at("actions").hidePopover());
  on("delete", "click", remove);
  on("export", "click", () => download("llm-demo-conversation.json", store.file([current])));
  on("export-all", "click", exportAll);
  on("import", "click", () => at("file").click());
  on("file", "change", () => take(at("file").files[0]).finally(() => (at("file").value = "")));
  on("rename", "click", () => {
    at("name").value = title(current);
    at("naming").showModal();
    at("name").select();
  });
  on("naming-cancel", "click", () => at("naming").close());
  on("naming-form", "submit", (event) => {
    event.preventDefault();
    current.title = at("name").value.trim();
    keep(current);
    at("naming").close();
    draw();
  });
  document.addEventListener("keydown", keyboard);
  // What an answer has until then is kept.
  window.addEventListener("pagehide", () => runs.forEach(({ conversation }) => keep(conversation)));
  // Another tab changed something.
  window.addEventListener("storage", () => {
    const other = store.conversation(current.id);
    if (other && !runs.has(current.id) && other.changed > current.changed) {
      current = other;
      draw();
    } else {
      drawList();
    }
  });
}

colors(settings.theme);
wire();
begin();
connect();
