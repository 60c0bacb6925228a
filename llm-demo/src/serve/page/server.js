// The server that the page is from: its properties, and answers as they come.

/// The reason that there is no answer, in words, and by `kind` what one can do.
export class Failure extends Error {
  constructor(kind, message, seconds = null) {
    super(message);
    this.kind = kind;
    // After which another try makes sense.
    this.seconds = seconds;
  }
}

const LOST = "The server cannot be reached. Is it running, and is this machine connected to it?";
const CUT = "The connection broke in the middle of the answer. The text so far is kept.";

export class Server {
  /// `key` gives the key of requests, or an empty text.
  constructor(key, fetcher = (...request) => fetch(...request)) {
    this.key = key;
    this.fetcher = fetcher;
  }

  async request(path, body, signal) {
    const headers = this.key() ? { Authorization: `Bearer ${this.key()}` } : {};
    const request = { headers, signal };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      Object.assign(request, { method: "POST", body: JSON.stringify(body) });
    }
    let response;
    try {
      response = await this.fetcher(path, request);
    } catch (error) {
      // A key that no header can have is none that the server knows.
      if (error.name === "AbortError") throw error;
      throw new Failure("lost", LOST);
    }
    if (!response.ok) throw await failure(response);
    return response;
  }

  async json(path, body, signal) {
    const response = await this.request(path, body, signal);
    try {
      return await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure("lost", "The server's answer is no JSON. Is there another program between?");
    }
  }

  /// Whether there is a model: `{status, reason}`.
  async health() {
    try {
      return await (await this.fetcher("health")).json();
    } catch {
      throw new Failure("lost", LOST);
    }
  }

  /// The model's name, its context, template and usual options.
  properties() {
    return this.json("props");
  }

  /// The number of tokens of a text.
  async count(text, signal) {
    return (await this.json("tokenize", { content: text }, signal)).count;
  }

  /// The events of an answer: `{text}` for each piece, then `{reason}` and `{usage}`.
  async *answer(body, signal) {
    const options = { stream: true, stream_options: { include_usage: true } };
    const response = await this.request("v1/chat/completions", { ...body, ...options }, signal);
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      let chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        throw new Failure("cut", CUT);
      }
      if (chunk.error) throw new Failure("server", sentence(chunk.error.message));
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) yield { text: choice.delta.content };
      if (choice?.finish_reason) yield { reason: choice.finish_reason };
      if (chunk.usage) yield { usage: chunk.usage };
    }
    throw new Failure("cut", CUT);
  }
}

/// The data of each event of a stream.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: ")) yield part.slice(6);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("cut", CUT);
  } finally {
    reader.cancel().catch(() => {});
  }
}

const closed = (text) => `${text}${/[.!?]$/.test(text) ? "" : "."}`;

const sentence = (text) => closed(`${String(text).charAt(0).toUpperCase()}${String(text).slice(1)}`);

async function failure(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // The status says what is known.
  }
  const words = closed(String(error.message ?? `the server answered ${response.status}`));
  const said = sentence(words);
  switch (response.status) {
    case 401:
      return new Failure("key", "The server asks for an API key, and has another one than this page.");
    case 429: {
      const seconds = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
      return new Failure("busy", `The server is busy: ${words}`, Number.isNaN(seconds) ? 5 : seconds);
    }
    case 503:
      return new Failure("unavailable", `The server has no model at the moment: ${words}`);
    case 400:
      if (error.code === "context_length_exceeded") {
        return new Failure("long", `The conversation is too long for the model. ${said}`);
      }
      return new Failure("request", said);
    default:
      return new Failure("server", said);
  }
}
