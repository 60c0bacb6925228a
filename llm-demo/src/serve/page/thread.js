// The messages of a conversation, and what one can do with them.

import { parts, rate } from "./answer.js";
import { button, copy, element } from "./dom.js";
import { show } from "./render.js";

const SLACK = 48;

export class Thread {
  /// `actions`: `regenerate(at)`, `edit(at, text)`, `retry()`, `settings()`, `begin()`.
  constructor(log, scroll, down, actions) {
    Object.assign(this, { log, scroll, down, actions });
    this.follows = true;
    scroll.addEventListener("scroll", () => this.scrolled(), { passive: true });
    down.addEventListener("click", () => this.toEnd());
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    this.follows = scrollHeight - scrollTop - clientHeight < SLACK;
    this.down.hidden = this.follows;
  }

  toEnd() {
    this.follows = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  /// Shows a conversation, the run that writes into it and the failure that ended the last one.
  show(conversation, run, failure, model) {
    const { messages } = conversation;
    this.run = run;
    this.bodies = new Map();
    const nodes = messages.map((message, at) => this.message(message, at));
    if (failure) nodes.push(this.failure(failure));
    else if (!run && messages.at(-1)?.role === "user") nodes.push(this.unanswered());
    if (nodes.length === 0) nodes.push(this.empty(model));
    this.log.replaceChildren(...nodes);
    this.log.setAttribute("aria-busy", String(Boolean(run)));
    if (this.follows) this.toEnd();
  }

  /// Shows more of a message.
  grow(message) {
    const body = this.bodies.get(message);
    if (!body) return;
    this.fill(body, message);
    if (this.follows) this.toEnd();
  }

  empty(model) {
    return element("div", { className: "empty" }, element("h2", {}, model || "llm-demo"),
      element("p", {}, "Messages go to this server alone. Conversations are kept in this browser."));
  }

  message(message, at) {
    const body = element("div", { className: "body" });
    this.bodies.set(message, body);
    this.fill(body, message);
    const label = message.role === "user" ? "You" : "Model";
    const made = element("article", { className: `message ${message.role}`, "aria-label": label }, body);
    if (this.run?.message !== message) made.append(this.tools(message, at, body));
    return made;
  }

  fill(body, message) {
    if (message.role === "user") {
      body.textContent = message.content;
      return;
    }
    if (!body.firstChild) {
      const thought = element("details", { className: "thought", hidden: true },
        element("summary", {}, "Thoughts"), element("div"));
      body.append(thought, element("div", { className: "text" }));
    }
    const { thought, said } = parts(message.content);
    const [details, text] = body.children;
    details.hidden = !thought;
    details.lastChild.textContent = thought;
    show(text, said);
    body.classList.toggle("waiting", this.run?.message === message);
  }

  tools(message, at, body) {
    const copies = button("Copy", "Copy the message", () => copy(message.content, copies));
    const edit = button("Edit", "Edit the message", () => this.edit(message, at, body));
    const tools = element("div", { className: "tools" }, copies, edit);
    if (message.role === "assistant") {
      tools.append(button("Regenerate", "Another answer", () => this.actions.regenerate(at)));
      const words = [message.note, statistics(message.stats)].filter(Boolean);
      tools.append(element("span", { className: "stats" }, words.join(" ")));
    }
    if (this.run) for (const one of tools.querySelectorAll("button")) one.disabled = one !== copies;
    return tools;
  }

  edit(message, at, body) {
    const rows = Math.min(message.content.split("\n").length + 1, 16);
    const area = element("textarea", { value: message.content, rows, "aria-label": "The message, edited" });
    const isMine = message.role === "user";
    const done = () => this.actions.edit(at, area.value);
    const cancel = () => {
      editor.replaceWith(body);
      body.nextSibling.hidden = false;
      body.nextSibling.querySelectorAll("button")[1].focus();
    };
    const save = button(isMine ? "Send" : "Save", isMine ? "Go on from here" : "Keep the text", done);
    save.className = "main";
    const editor = element("div", { className: "body editing" }, area,
      element("div", { className: "bar" }, save, button("Cancel", "Leave it as it was", cancel)));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        done();
      }
    });
    body.replaceWith(editor);
    editor.nextSibling.hidden = true;
    area.focus();
  }

  failure(failure) {
    const bar = element("div", { className: "bar" });
    const made = element("div", { className: "failure", role: "alert" }, element("p", {}, failure.message), bar);
    const { actions } = this;
    if (failure.kind === "key") bar.append(button("Enter the key", "Enter the key", actions.settings));
    if (failure.kind === "long") bar.append(button("New conversation", "New conversation", actions.begin));
    const again = button("Try again", "Ask again", actions.retry);
    bar.append(again);
    if (failure.seconds) this.countdown(again, failure.seconds);
    return made;
  }

  // The button is for those who wait so long as the server says.
  countdown(again, seconds) {
    again.disabled = seconds > 0;
    again.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
    if (seconds > 0) setTimeout(() => again.isConnected && this.countdown(again, seconds - 1), 1000);
  }

  unanswered() {
    return element("div", { className: "bar" }, button("Answer", "Ask for an answer", this.actions.retry));
  }
}

function statistics(stats) {
  if (!stats) return "";
  const speed = rate(stats.tokens, stats.seconds);
  const words = [`${stats.tokens} tokens`, `first after ${stats.first.toFixed(2)} s`];
  if (speed) words.splice(1, 0, `${speed.toFixed(1)} tokens/s`);
  return words.join(" · ");
}
