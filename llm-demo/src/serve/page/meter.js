// How much of the model's context a conversation takes, and how fast an answer is written.

import { at } from "./dom.js";
import { sent } from "./answer.js";

const PAUSE = 400;

export class Meter {
  constructor(server) {
    this.server = server;
    this.context = 0;
  }

  /// Shows the tokens of a conversation with a message that is being written: those that the server told of the last
  /// answer, and for what came since those of the texts, which the template adds a few to.
  show(conversation, draft, pieces = 0) {
    clearTimeout(this.timer);
    this.controller?.abort();
    const { messages } = conversation;
    const last = messages.findLastIndex(({ stats }) => stats);
    const known = last >= 0 ? messages[last].stats.prompt + messages[last].stats.tokens : 0;
    const rest = last >= 0 ? messages.slice(last + 1) : sent(conversation);
    const text = [...rest.map(({ content }) => content), draft].join("\n").trim();
    if (pieces) return this.tell(Math.max(known, this.before ?? 0) + pieces, true);
    if (!text) {
      this.before = known;
      return this.tell(known, false);
    }
    this.timer = setTimeout(() => this.count(known, text), PAUSE);
  }

  async count(known, text) {
    this.controller = new AbortController();
    try {
      this.before = known + (await this.server.count(text, this.controller.signal));
      this.tell(this.before, true);
    } catch {
      // What is wrong is told where an answer is asked for.
    }
  }

  tell(tokens, isRough) {
    at("context").hidden = !this.context;
    const number = (n) => n.toLocaleString("en");
    at("used").textContent = `${isRough ? "about " : ""}${number(tokens)} of ${number(this.context)} tokens`;
    Object.assign(at("meter"), { max: this.context, high: this.context * 0.8, optimum: 0, value: tokens });
  }

  speed(run) {
    const speed = run?.speed;
    at("speed").textContent = speed ? `${speed.toFixed(1)} tokens/s` : "";
  }
}
