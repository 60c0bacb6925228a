// Conversations and settings in the browser's storage: an entry for each conversation, so that tabs don't overwrite
// each other's.

const PREFIX = "llm-demo.conversation.";
const SETTINGS = "llm-demo.settings";
const ROLES = ["user", "assistant"];
const LONGEST_TITLE = 200;

/// The options of answers, with what the server takes.
export const OPTIONS = {
  temperature: { least: 0, most: 2, step: 0.05, label: "Temperature", hint: "0 always takes the likeliest token" },
  top_p: { least: 0, most: 1, step: 0.01, label: "Top p", hint: "of the likeliest tokens with this probability together" },
  top_k: { least: 0, most: 1000, step: 1, label: "Top k", hint: "of so many of the likeliest; 0 for all" },
  min_p: { least: 0, most: 1, step: 0.01, label: "Min p", hint: "of those at least so likely, beside the likeliest" },
  repeat_penalty: { least: 0.1, most: 10, step: 0.05, label: "Repeat penalty", hint: "above 1 against repetition" },
  max_tokens: { least: 1, most: 10_000_000, step: 1, label: "Most tokens", hint: "of an answer" },
  seed: { least: 0, most: 4_294_967_295, step: 1, label: "Seed", hint: "the same seed, the same answer" },
};

/// A change that could not be kept, in words.
export class Unkept extends Error {}

/// A conversation with nothing in it.
export function empty(system = "") {
  return { id: crypto.randomUUID?.() ?? random(), title: "", system, messages: [], changed: Date.now() };
}

// Pages of plain HTTP from another machine have no randomUUID.
function random() {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(16)).join("-");
}

/// The title of a conversation: its own, or its first words.
export function title({ title, messages }) {
  const first = messages.find(({ role }) => role === "user")?.content.trim().split("\n", 1)[0] ?? "";
  return title || (first.length > 60 ? `${first.slice(0, 60)}…` : first) || "New conversation";
}

export class Store {
  constructor(storage) {
    this.storage = storage;
    // What could not be kept, and everything where there is no storage.
    this.held = new Map();
  }

  read(key) {
    if (this.held.has(key)) return this.held.get(key);
    try {
      return this.storage.getItem(key);
    } catch {
      return null;
    }
  }

  write(key, text) {
    try {
      this.storage.setItem(key, text);
      this.held.delete(key);
    } catch (error) {
      this.held.set(key, text);
      const full = error?.name === "QuotaExceededError" || error?.name === "NS_ERROR_DOM_QUOTA_REACHED";
      throw new Unkept(full
        ? "The browser's storage is full, so this is lost with the tab: export conversations and delete some."
        : "The browser keeps nothing of this page, so this is lost with the tab: export what you want to keep.");
    }
  }

  keys() {
    const keys = new Set(this.held.keys());
    try {
      for (let n = 0; n < this.storage.length; n += 1) keys.add(this.storage.key(n));
    } catch {
      // Then there are those in memory.
    }
    return [...keys].filter((key) => key.startsWith(PREFIX));
  }

  /// The conversations, the latest first. What is none is left alone.
  all() {
    const found = this.keys().map((key) => this.conversation(key.slice(PREFIX.length)));
    return found.filter((one) => one !== null).sort((a, b) => b.changed - a.changed);
  }

  conversation(id) {
    try {
      return { ...checked(JSON.parse(this.read(PREFIX + id))), id };
    } catch {
      return null;
    }
  }

  /// Keeps a conversation; throws `Unkept` if it is in memory alone.
  keep(conversation) {
    this.write(PREFIX + conversation.id, JSON.stringify(conversation));
  }

  remove(id) {
    this.held.delete(PREFIX + id);
    try {
      this.storage.removeItem(PREFIX + id);
    } catch {
      // There is no storage.
    }
  }

  settings() {
    let found = {};
    try {
      found = JSON.parse(this.read(SETTINGS)) ?? {};
    } catch {
      // Of another program, or none.
    }
    const text = (name) => (typeof found[name] === "string" ? found[name] : "");
    const theme = ["light", "dark"].includes(found.theme) ? found.theme : "";
    return { key: text("key"), system: text("system"), theme, options: options(found.options) };
  }

  keepSettings(settings) {
    this.write(SETTINGS, JSON.stringify(settings));
  }

  /// A file of conversations.
  file(conversations) {
    return JSON.stringify({ format: "llm-demo conversations", version: 1, conversations }, null, 1);
  }

  /// Adds the conversations of such a file; their number. Of one that is here already a copy is added.
  take(text) {
    let file;
    try {
      file = JSON.parse(text);
    } catch {
      throw new Error("The file is no JSON.");
    }
    if (file?.format !== "llm-demo conversations" || !Array.isArray(file.conversations)) {
      throw new Error("The file has no conversations of this page.");
    }
    const taken = file.conversations.map((one, at) => {
      try {
        return { ...checked(one), id: empty().id };
      } catch (error) {
        throw new Error(`Nothing is imported, conversation ${at + 1} of the file is wrong: ${error.message}`);
      }
    });
    const failures = [];
    for (const one of taken) {
      try {
        this.keep(one);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length) throw failures[0];
    return taken.length;
  }
}

// The options that a field of the settings has, without others.
function options(found) {
  const one = ([name, { least, most }]) => {
    const value = found?.[name];
    return typeof value === "number" && value >= least && value <= most ? [[name, value]] : [];
  };
  return Object.fromEntries(Object.entries(OPTIONS).flatMap(one));
}

// A conversation of a file or an entry, with its own fields alone.
function checked(found) {
  const text = (value, what) => {
    if (typeof value !== "string") throw new Error(`${what} is no text`);
    return value;
  };
  if (!Array.isArray(found?.messages)) throw new Error("it has no messages");
  const messages = found.messages.map((message, at) => {
    if (!ROLES.includes(message?.role)) throw new Error(`message ${at + 1} is by nobody`);
    const kept = { role: message.role, content: text(message.content, `message ${at + 1}`) };
    if (typeof message.note === "string") kept.note = message.note;
    const stats = numbers(message.stats);
    return stats ? { ...kept, stats } : kept;
  });
  return {
    title: text(found.title ?? "", "its title").slice(0, LONGEST_TITLE),
    system: text(found.system ?? "", "its system prompt"),
    messages,
    changed: Number.isFinite(found.changed) ? found.changed : Date.now(),
  };
}

function numbers(stats) {
  const names = ["prompt", "cached", "tokens", "first", "seconds"];
  const given = names.every((name) => Number.isFinite(stats?.[name]));
  return given ? Object.fromEntries(names.map((name) => [name, stats[name]])) : null;
}
