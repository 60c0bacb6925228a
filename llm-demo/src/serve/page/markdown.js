// Reads markdown, as models write it, into plain data: CommonMark's blocks and spans without HTML, and tables. All
// work is linear in the text, and nothing nests deeper than a bound: texts may be hostile.

// Blocks within each other.
const DEEPEST = 12;
// Spans that are open at the same time; the oldest becomes text.
const MOST_OPEN = 24;
// Marks of emphasis in a row; more are text.
const LONGEST_RUN = 3;
const MOST_COLUMNS = 64;
const LONGEST_ADDRESS = 2048;
const LONGEST_TITLE = 512;

const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const SPACE_OR_END = /^$|\s/u;
const MARK = /^$|[\p{P}\p{S}]/u;

/// The blocks of a text. Each has its `source`: equal sources are equal blocks.
export function parse(text) {
  return blocks(text.replaceAll("\r\n", "\n").split(/[\n\r]/), 0);
}

/// The address of a link, if it is one that may be followed: of the web or of mail, and complete.
export function safe(address) {
  if (address.length > LONGEST_ADDRESS) return null;
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, end] =
      code(lines, at) ??
      heading(lines, at) ??
      rule(lines, at) ??
      (depth < DEEPEST ? quote(lines, at, depth) ?? list(lines, at, depth) : null) ??
      table(lines, at) ??
      paragraph(lines, at, depth);
    found.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return found;
}

// A fence's character, length and language.
function fence(line) {
  const rest = line.trim();
  const mark = rest[0];
  if (mark !== "`" && mark !== "~") return null;
  let length = 0;
  while (rest[length] === mark) length += 1;
  const info = rest.slice(length).trim();
  return length < 3 || (mark === "`" && info.includes("`")) ? null : { mark, length, info };
}

function code(lines, at) {
  const begin = fence(lines[at]);
  if (!begin) return null;
  const indent = indentOf(lines[at]);
  const inner = [];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const close = fence(lines[end]);
    if (close && close.mark === begin.mark && close.length >= begin.length && !close.info) break;
    inner.push(lines[end].slice(Math.min(indent, indentOf(lines[end]))));
  }
  const language = begin.info.split(/\s/, 1)[0];
  return [{ type: "code", language, text: inner.join("\n") }, Math.min(end + 1, lines.length)];
}

function heading(lines, at) {
  const [, marks, rest] = /^ {0,3}(#{1,6})([ \t].*)?$/.exec(lines[at]) ?? [];
  if (!marks) return null;
  let text = (rest ?? "").trim();
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
  return [{ type: "heading", level: marks.length, children: inline(text) }, at + 1];
}

function isRule(line) {
  const marks = line.replace(/[ \t]/g, "");
  return marks.length >= 3 && /^(-+|\*+|_+)$/.test(marks);
}

function rule(lines, at) {
  return isRule(lines[at]) ? [{ type: "rule" }, at + 1] : null;
}

const isQuote = (line) => line.trimStart().startsWith(">");

function quote(lines, at, depth) {
  let end = at;
  const inner = [];
  for (; end < lines.length && isQuote(lines[end]); end += 1) {
    const rest = lines[end].trimStart().slice(1);
    inner.push(rest.startsWith(" ") ? rest.slice(1) : rest);
  }
  return end > at ? [{ type: "quote", blocks: blocks(inner, depth + 1) }, end] : null;
}

// The marker of an item at the beginning of a line. Items of one list are of one kind.
function marker(line) {
  const [, space, mark, rest] = /^([ \t]*)([-*+]|\d{1,9}[.)])((?:[ \t].*)?)$/.exec(line) ?? [];
  if (mark === undefined || isRule(line)) return null;
  // An item of code is indented further; its space belongs to it.
  const gap = Math.min(Math.max(indentOf(rest), 1), 4);
  const number = Number.parseInt(mark, 10);
  return {
    indent: space.length,
    content: space.length + mark.length + gap,
    kind: mark.at(-1),
    number: Number.isNaN(number) ? null : number,
    rest: rest.slice(gap),
  };
}

function list(lines, begin, depth) {
  const first = marker(lines[begin]);
  if (!first) return null;
  const items = [];
  let at = begin;
  let tight = true;
  while (at < lines.length) {
    const mark = marker(lines[at]);
    if (!mark || mark.kind !== first.kind) break;
    const inner = [mark.rest];
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const indent = indentOf(line);
      if (isBlank(line)) inner.push("");
      // Models indent by two also where the marker is wider.
      else if (indent >= mark.indent + 2) inner.push(line.slice(Math.min(indent, mark.content)));
      else if (inner.at(-1) !== "" && !marker(line) && !begins(line, depth)) inner.push(line.trimStart());
      else break;
    }
    let blank = false;
    for (; inner.length > 1 && inner.at(-1) === ""; inner.pop()) blank = true;
    if (blank && at < lines.length && marker(lines[at])?.kind === first.kind) tight = false;
    const task = /^\[([ xX])\] /.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const own = blocks(inner, depth + 1);
    if (own.filter(({ type }) => type === "paragraph").length > 1) tight = false;
    items.push({ done: task ? task[1] !== " " : null, blocks: own });
  }
  return [{ type: "list", start: first.number, tight, items }, at];
}

// The cells of a row; a backslash keeps a bar in its cell.
function cells(line) {
  const row = line.trim();
  const found = [];
  let cell = "";
  for (let at = row[0] === "|" ? 1 : 0; at < row.length; at += 1) {
    if (row[at] === "\\" && row[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (row[at] === "|") {
      found.push(cell.trim());
      cell = "";
    } else {
      cell += row[at];
    }
  }
  if (cell.trim() !== "") found.push(cell.trim());
  return found;
}

function table(lines, at) {
  const next = lines[at + 1];
  if (!lines[at].includes("|") || next === undefined || !/^[ \t:|-]+$/.test(next)) return null;
  const bars = cells(next);
  const head = cells(lines[at]);
  if (head.length !== bars.length || head.length > MOST_COLUMNS) return null;
  if (!bars.every((bar) => /^:?-+:?$/.test(bar))) return null;
  const align = bars.map((bar) => {
    if (!bar.endsWith(":")) return null;
    return bar.startsWith(":") ? "center" : "right";
  });
  const rows = [];
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) {
    const row = cells(lines[end]);
    rows.push(head.map((_, column) => inline(row[column] ?? "")));
  }
  return [{ type: "table", align, head: head.map(inline), rows }, end];
}

// Whether a line begins another block than the paragraph before it.
function begins(line, depth) {
  if (fence(line) || heading([line], 0) || isRule(line)) return true;
  if (depth >= DEEPEST) return false;
  // A number at the beginning of a line is one of the text, unless it is the first of a list.
  const mark = marker(line);
  return isQuote(line) || (mark !== null && mark.rest !== "" && (mark.number ?? 1) === 1);
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !begins(lines[end], depth) && !table(lines, end)) {
    end += 1;
  }
  const text = lines.slice(at, end).map((line) => line.trim());
  return [{ type: "paragraph", children: inline(text.join("\n")) }, end];
}

/// The spans of a text without blocks.
export function inline(text) {
  return new Spans(text).read();
}

class Spans {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.nodes = [];
    // Marks that may begin a span: their nodes' places in `nodes`.
    this.open = [];
    // Places of runs of backticks, by length.
    this.ticks = new Map();
    for (const { 0: run, index } of text.matchAll(/`+/g)) {
      if (!this.ticks.has(run.length)) this.ticks.set(run.length, { places: [], next: 0 });
      this.ticks.get(run.length).places.push(index);
    }
  }

  read() {
    while (this.at < this.text.length) this.step();
    return this.nodes.filter(({ type, text }) => type !== "text" || text !== "");
  }

  step() {
    const { text, at } = this;
    switch (text[at]) {
      case "\\":
        return this.escape();
      case "\n":
        return this.take(1, { type: "break" });
      case "`":
        return this.code();
      case "*":
      case "_":
      case "~":
        return this.marks();
      case "!":
      case "[": {
        const begin = text.startsWith("![", at) ? "![" : text[at];
        if (begin !== "!") this.begin({ mark: "[", count: 1, place: this.nodes.length });
        return this.take(begin.length, { type: "text", text: begin });
      }
      case "]":
        return this.link();
      case "<":
        return this.angle();
      case "&":
        return this.entity();
      case "h":
        return this.address();
      default: {
        const words = /(?:[^\\\n`*_~![\]<&h]|(?<=\w)h|h(?!ttps?:))+/y;
        words.lastIndex = at;
        return this.say(words.exec(text)[0]);
      }
    }
  }

  // Adds a node for so many characters.
  take(length, node) {
    this.at += length;
    this.nodes.push(node);
  }

  // Adds text that is as it is written, or another.
  say(source, text = source) {
    this.take(source.length, { type: "text", text });
  }

  begin(opener) {
    if (this.open.length >= MOST_OPEN) this.open.shift();
    this.open.push(opener);
  }

  // A match of a sticky expression here.
  here(expression) {
    expression.lastIndex = this.at;
    return expression.exec(this.text);
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") return this.take(2, { type: "break" });
    return PUNCTUATION.test(next) ? this.say(`\\${next}`, next) : this.say("\\");
  }

  code() {
    const run = this.here(/`+/y)[0];
    const ticks = this.ticks.get(run.length);
    const from = this.at + run.length;
    while (ticks.places[ticks.next] < from) ticks.next += 1;
    const end = ticks.places[ticks.next];
    if (end === undefined) return this.say(run);
    let text = this.text.slice(from, end).replaceAll("\n", " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim() !== "") text = text.slice(1, -1);
    return this.take(end + run.length - this.at, { type: "code", text });
  }

  // Marks of emphasis, that end what is open, begin something, or are text.
  marks() {
    const mark = this.text[this.at];
    let count = this.here(/\*+|_+|~+/y)[0].length;
    const [before, after] = [this.text[this.at - 1] ?? "", this.text[this.at + count] ?? ""];
    const isLong = count > LONGEST_RUN || (mark === "~" && count !== 2);
    if (isLong) return this.say(mark.repeat(count));
    const spaces = [SPACE_OR_END.test(before), SPACE_OR_END.test(after)];
    const signs = [MARK.test(before), MARK.test(after)];
    const left = !spaces[1] && (!signs[1] || spaces[0] || signs[0]);
    const right = !spaces[0] && (!signs[0] || spaces[1] || signs[1]);
    // Within a word an underscore is a letter.
    const canBegin = left && (mark !== "_" || !right || signs[0]);
    const canEnd = right && (mark !== "_" || !left || signs[1]);
    this.at += count;
    while (canEnd && count > 0) {
      const index = this.open.findLastIndex((opener) => opener.mark === mark);
      if (index < 0) break;
      count -= this.wrap(index, count);
    }
    if (count === 0) return;
    if (canBegin) this.begin({ mark, count, place: this.nodes.length });
    this.nodes.push({ type: "text", text: mark.repeat(count) });
  }

  // Makes a span of what follows an opener; the number of marks that it takes.
  wrap(index, count) {
    const opener = this.open[index];
    const used = Math.min(opener.count, count, 2);
    const double = opener.mark === "~" ? "strike" : "strong";
    const children = this.nodes.splice(opener.place + 1);
    opener.count -= used;
    this.nodes[opener.place].text = opener.mark.repeat(opener.count);
    this.open.length = index + (opener.count > 0 ? 1 : 0);
    this.nodes.push({ type: used === 2 ? double : "emphasis", children });
    return used;
  }

  link() {
    const index = this.open.findLastIndex(({ mark }) => mark === "[");
    const target = index < 0 ? null : this.target();
    const href = target && safe(target.address);
    if (index >= 0 && !href) this.open.splice(index, 1);
    if (!href) return this.say("]");
    const { place } = this.open[index];
    const children = this.nodes.splice(place).slice(1);
    // No link is within a link, and no span ends outside of the one that it began in.
    this.open = this.open.slice(0, index).filter(({ mark }) => mark !== "[");
    return this.take(target.length, { type: "link", href, children });
  }

  // The address in parentheses after a bracket.
  target() {
    const begin = this.here(/\]\([ \n]{0,8}/y);
    if (!begin) return null;
    let end = this.at + begin[0].length;
    const from = end;
    let [address, depth] = ["", 0];
    if (this.text[end] === "<") {
      for (end += 1; end - from <= LONGEST_ADDRESS && !/^$|[<>\n]/.test(this.text[end] ?? ""); ) end += 1;
      address = this.text.slice(from + 1, end);
      end += 1;
    } else {
      for (; end < this.text.length && end - from <= LONGEST_ADDRESS; end += 1) {
        const next = this.text[end];
        if (next === "(") depth += 1;
        else if (next === ")") depth -= 1;
        if (depth < 0 || depth > 8 || /[\s<]/.test(next)) break;
      }
      address = this.text.slice(from, end);
    }
    const rest = this.text.slice(end, end + LONGEST_TITLE);
    const close = /^(?:\s{1,8}(?:"[^"]*"|'[^']*'))?\s{0,8}\)/.exec(rest);
    return close && { address, length: end + close[0].length - this.at };
  }

  angle() {
    if (this.here(/<br ?\/?>/y)) return this.take(this.here(/<br ?\/?>/y)[0].length, { type: "break" });
    const found = this.here(/<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/y);
    const href = found && safe(found[1]);
    if (!href) return this.say("<");
    return this.take(found[0].length, { type: "link", href, children: [{ type: "text", text: found[1] }] });
  }

  entity() {
    const found = this.here(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos|nbsp));/y);
    if (!found) return this.say("&");
    const [source, decimal, hex, name] = found;
    const point = decimal ? Number.parseInt(decimal, 10) : Number.parseInt(hex ?? "0", 16);
    const isCharacter = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point < 0xe000);
    return this.say(source, name ? NAMED[name] : isCharacter ? String.fromCodePoint(point) : "\ufffd");
  }

  // An address of the web in the middle of a text, without the signs that end a sentence.
  address() {
    const found = /\w/.test(this.text[this.at - 1] ?? "") ? null : this.here(/https?:\/\/[^\s<>"`*|\\]+/y);
    if (!found) return this.say("h");
    let [end, parentheses] = [found[0].length, 0];
    for (const next of found[0]) parentheses += next === "(" ? 1 : next === ")" ? -1 : 0;
    for (; /[.,;:!?'_~)\]]/.test(found[0][end - 1]); end -= 1) {
      if (found[0][end - 1] !== ")") continue;
      if (parentheses >= 0) break;
      parentheses += 1;
    }
    const text = found[0].slice(0, end);
    const href = safe(text);
    if (!href) return this.say(text);
    return this.take(end, { type: "link", href, children: [{ type: "text", text }] });
  }
}
