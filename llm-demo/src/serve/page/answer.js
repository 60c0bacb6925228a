// An answer that is being written into a conversation.

/// The thoughts that some models write before what they say.
export function parts(text) {
  const end = text.indexOf("</think>");
  const begin = text.trimStart().startsWith("<think>") ? text.indexOf("<think>") + "<think>".length : -1;
  if (end >= 0) return { thought: text.slice(Math.max(begin, 0), end).trim(), said: text.slice(end + "</think>".length).trimStart() };
  return begin >= 0 ? { thought: text.slice(begin).trim(), said: "" } : { thought: "", said: text };
}

/// The messages of a request: thoughts of before are not part of it.
export function sent({ system, messages }) {
  const all = messages.map(({ role, content }) => ({ role, content: role === "user" ? content : parts(content).said }));
  return system.trim() ? [{ role: "system", content: system }, ...all] : all;
}

export class Run {
  /// Asks `server` to go on with `conversation`; `changed` is called for each piece.
  constructor(server, conversation, options, changed) {
    this.conversation = conversation;
    this.controller = new AbortController();
    this.message = { role: "assistant", content: "" };
    this.pieces = 0;
    this.began = performance.now();
    const body = { ...options, messages: sent(conversation) };
    conversation.messages.push(this.message);
    this.ended = this.write(server.answer(body, this.controller.signal), changed);
  }

  stop() {
    this.controller.abort();
  }

  /// Tokens per second after the first, of the pieces so far or of the tokens that the server counted.
  get speed() {
    const { stats } = this.message;
    return rate(stats?.tokens ?? this.pieces, stats?.seconds ?? (this.last - this.first) / 1000);
  }

  // The failure that ended the answer, or null.
  async write(events, changed) {
    const { message } = this;
    let failure = null;
    try {
      for await (const event of events) {
        if (event.text) {
          this.last = performance.now();
          this.first ??= this.last;
          this.pieces += 1;
          message.content += event.text;
          changed();
        }
        if (event.reason === "length") message.note = "The answer was cut: no more tokens are allowed or fit.";
        if (event.usage) message.stats = this.stats(event.usage);
      }
    } catch (error) {
      if (error.name === "AbortError") message.note = "Stopped.";
      else failure = error;
      if (failure && message.content) message.note = "Incomplete.";
    }
    const { messages } = this.conversation;
    // What failed or was stopped before it began is none.
    if (!message.content && (failure || message.note === "Stopped.")) messages.splice(messages.indexOf(message), 1);
    return failure;
  }

  stats({ prompt_tokens: prompt, completion_tokens: tokens, prompt_tokens_details: details }) {
    const first = ((this.first ?? performance.now()) - this.began) / 1000;
    const seconds = ((this.last ?? 0) - (this.first ?? 0)) / 1000;
    return { prompt, cached: details?.cached_tokens ?? 0, tokens, first, seconds };
  }
}

/// Tokens per second, where there are enough of them to tell.
export function rate(tokens, seconds) {
  return tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null;
}
