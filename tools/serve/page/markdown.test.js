// The page's reader of markdown: what it makes of texts, and that hostile ones take it no longer than others.

import assert from "node:assert/strict";
import { test } from "node:test";

import { inline, parse, safe } from "../../../llm-demo/src/serve/page/markdown.js";

// Spans and blocks in short: elements as lists that begin with their names.
const spans = (nodes) =>
  nodes.reduce((made, { type, text, href, children }) => {
    if (type === "text" && typeof made.at(-1) === "string") made.push(made.pop() + text);
    else if (type === "text") made.push(text);
    else if (type === "code") made.push(["code", text]);
    else if (type === "break") made.push(["break"]);
    else made.push([type, ...(href ? [href] : []), ...spans(children)]);
    return made;
  }, []);
const short = (text) => spans(inline(text));
const block = (it) => {
  switch (it.type) {
    case "code":
      return ["code", it.language, it.text];
    case "quote":
      return ["quote", ...it.blocks.map(block)];
    case "list":
      return [it.start ?? "-", ...it.items.map(({ blocks }) => blocks.map(block))];
    case "table":
      return ["table", it.head.map(spans), ...it.rows.map((row) => row.map(spans))];
    case "heading":
      return [`h${it.level}`, ...spans(it.children)];
    default:
      return [it.type, ...(it.children ? spans(it.children) : [])];
  }
};
const blocks = (text) => parse(text).map(block);
const p = (...children) => ["paragraph", ...children];

test("spans", () => {
  for (const [text, made] of [
    ["a *b* **c** ***d*** ~~e~~", ["a ", ["emphasis", "b"], " ", ["strong", "c"], " ", ["emphasis", ["strong", "d"]], " ", ["strike", "e"]]],
    ["_a_ __b__ snake_case_name", [["emphasis", "a"], " ", ["strong", "b"], " snake_case_name"]],
    ["**a *b* c**", [["strong", "a ", ["emphasis", "b"], " c"]]],
    ["2 * 3 * 4, **open, *open", ["2 * 3 * 4, **open, *open"]],
    ["`a*b` ``c`d`` `e", [["code", "a*b"], " ", ["code", "c`d"], " `e"]],
    ["`<b>` \\*c\\* \\d", [["code", "<b>"], " *c* \\d"]],
    ["a\nb<br>c\\\nd", ["a", ["break"], "b", ["break"], "c", ["break"], "d"]],
    ["&lt;b&gt; &#65;&#x42; &nope; &#0;", ["<b> AB &nope; \ufffd"]],
    ["[a *b*](https://c.d/e?f=g&h \"i\")", [["link", "https://c.d/e?f=g&h", "a ", ["emphasis", "b"]]]],
    ["[a](https://c.d/(e)) [f](<https://g.h/i j>)", [["link", "https://c.d/(e)", "a"], " ", ["link", "https://g.h/i%20j", "f"]]],
    ["see https://a.b/c_d. (http://e.f/g(h)) <mailto:i@j.k>", ["see ", ["link", "https://a.b/c_d", "https://a.b/c_d"], ". (", ["link", "http://e.f/g(h)", "http://e.f/g(h)"], ") ", ["link", "mailto:i@j.k", "mailto:i@j.k"]]],
    ["**https://a.b/**", [["strong", ["link", "https://a.b/", "https://a.b/"]]]],
    ["![a](https://b.c/d.png)", [["link", "https://b.c/d.png", "a"]]],
    ["[a [b](https://c.d/) e](https://f.g/)", ["[a ", ["link", "https://c.d/", "b"], " e](", ["link", "https://f.g/", "https://f.g/"], ")"]],
    ["*a [b* c](https://d.e/)", [["emphasis", "a [b"], " c](", ["link", "https://d.e/", "https://d.e/"], ")"]],
    ["[1] [a][b] [c]", ["[1] [a][b] [c]"]],
  ]) assert.deepEqual(short(text), made, text);
});

test("blocks", () => {
  for (const [text, made] of [
    ["# a #\n## *b*\n####### c\n#d", [["h1", "a"], ["h2", ["emphasis", "b"]], p("####### c", ["break"], "#d")]],
    ["a\nb\n\nc", [p("a", ["break"], "b"), p("c")]],
    ["```rust\nfn a() {\n\n    <b>\n```\nc", [["code", "rust", "fn a() {\n\n    <b>"], p("c")]],
    ["````\n```\n````\n~~~ a b\nc", [["code", "", "```"], ["code", "a", "c"]]],
    ["- a\n- b\n  - c\n    d\n- e", [["-", [p("a")], [p("b"), ["-", [p("c", ["break"], "d")]]], [p("e")]]]],
    ["1. a\n  - b\n2. c\n\n   ```\n   d\n   ```", [[1, [p("a"), ["-", [p("b")]]], [p("c"), ["code", "", "d"]]]]],
    ["3) a\n4) b\n- c", [[3, [p("a")], [p("b")]], ["-", [p("c")]]]],
    ["It was in\n1986. A good year", [p("It was in", ["break"], "1986. A good year")]],
    ["a:\n- b\n\nc", [p("a:"), ["-", [p("b")]], p("c")]],
    ["> a\n> - b\n>\n> > c\nd", [["quote", p("a"), ["-", [p("b")]], ["quote", p("c")]], p("d")]],
    ["a\n---\n***\n* * *", [p("a"), ["rule"], ["rule"], ["rule"]]],
    ["| a | b |\n|---|:-:|\n| `c` | d\\|e |\n| f |\ng", [["table", [["a"], ["b"]], [[["code", "c"]], ["d|e"]], [["f"], []]], p("g")]],
    ["a | b\n-|-\n1 | 2 | 3", [["table", [["a"], ["b"]], [["1"], ["2"]]]]],
    ["a | b\n-|-|-", [p("a | b", ["break"], "-|-|-")]],
    ["a\r\nb\rc", [p("a", ["break"], "b", ["break"], "c")]],
    ["", []],
  ]) assert.deepEqual(blocks(text), made, text);
  assert.deepEqual(parse("- [x] a\n- [ ] b\n- c")[0].items.map(({ done }) => done), [true, false, null]);
  assert.deepEqual(["- a\n- b", "- a\n\n- b"].map((text) => parse(text)[0].tight), [true, false]);
  assert.deepEqual(parse("|a|b|c|\n|-|-:|:-:|")[0].align, [null, "right", "center"]);
});

test("only addresses of the web and of mail are links", () => {
  for (const address of [
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", "\u0001javascript:alert(1)", "data:text/html,a",
    "vbscript:a", "file:///etc/passwd", "blob:https://a.b/c", "//a.b", "/v1/models", "a.b", "", `https://${"a".repeat(3000)}`,
  ]) {
    assert.equal(safe(address), null, address);
    const made = JSON.stringify(short(`[a](${address}) [a](<${address}>) <${address}> ![a](${address})`));
    assert.ok(!made.includes('["link","j') && !/link","(?!https?:|mailto:)/.test(made), made);
  }
  assert.deepEqual(short("[a](javascript:alert%281%29)"), ["[a](javascript:alert%281%29)"]);
});

test("what is the same has the same source, so a text that grows changes its end alone", () => {
  const text = "# a\n\n- b\n- c\n\n```\nd\n```\n\n| e |\n|---|\n| f |\n\ng **h** i";
  for (let length = 0; length < text.length; length += 1) {
    const [before, after] = [parse(text.slice(0, length)), parse(text.slice(0, length + 1))];
    const same = before.slice(0, -1).every(({ source }, at) => source === after[at].source);
    assert.ok(same, text.slice(0, length));
  }
});

// Nothing is lost: the letters of a text are those of its nodes.
test("no letter is lost", () => {
  const letters = "ab \n*_~`[]()<>!#|-\\&;:1.";
  let seed = 1;
  const next = () => (seed = (seed * 48271) % 2147483647);
  const said = (it) => JSON.stringify(it).replace(/"source":"(?:[^"\\]|\\.)*"/g, "").replace(/"\w+":/g, "");
  for (let round = 0; round < 3000; round += 1) {
    const text = Array.from({ length: 1 + (next() % 40) }, () => letters[next() % letters.length]).join("");
    const words = text.replace(/[^a]/g, "").length;
    const kept = said(parse(text).map(block)).replace(/"(?:paragraph|table|break|emphasis|strong|strike|code|quote|rule|link)"/g, "");
    // The word after a fence is the name of a language, and the cells past a table's columns are left out.
    if (!/```|~~~|\|/.test(text)) assert.equal(kept.replace(/[^a]/g, "").length, words, text);
  }
});

test("hostile texts take no longer than others, and nest no deeper than a bound", () => {
  const many = (text, count) => text.repeat(count);
  const deepest = (it) => (it && typeof it === "object" ? 1 + Math.max(0, ...Object.values(it).map(deepest)) : 0);
  for (const text of [
    many("*a ", 5e4), many("*a* ", 5e4), many("*a ", 3e4) + many("a* ", 3e4), many("*", 1e5), many("*_~~", 3e4),
    many("***a", 3e4), many("[", 1e5), many("[](", 4e4), many("[a](b \"", 2e4), many("[](<", 3e4), many("![[", 3e4),
    many("[a](https://b.c/ ", 2e4), many("`a``", 3e4), Array.from({ length: 400 }, (_, n) => many("`", n)).join(" "),
    many(">", 1e5), many(`${many(">", 50)}\n`, 2000), many("- ", 5e4), many("1. ", 5e4), many("- a\n\n\n", 2e4),
    Array.from({ length: 500 }, (_, n) => `${many(" ", n * 2)}- a`).join("\n"), many("|a|\n|-|\n", 2e4),
    `|${many("a|", 60)}\n|${many("-|", 60)}\n${many("|\n", 5000)}`, `${many("|", 1e5)}\n${many("|", 1e5)}`,
    `${many("a|", 3000)}\n${many("-|", 3000)}\n${many("a|\n", 3000)}`, `a${many(" ", 1e5)}b`, many("```\n", 4e4 + 1),
    `https://${many("a", 1e5)}${many(").", 1e4)}`, many("https://", 2e4), many("<https://", 2e4), many("&", 1e5),
    many("\\", 1e5 + 1), many("h", 1e5), many("a|\n", 5e4), many("#", 1e5), `# a${many(" #", 5e4)}`, many("\n", 1e5),
  ]) {
    // Of the processor: others may use it too.
    const began = process.cpuUsage();
    const made = parse(text);
    const { user, system } = process.cpuUsage(began);
    const seconds = (user + system) / 1e6;
    assert.ok(seconds < 3, `${text.slice(0, 20)}: ${seconds} s`);
    assert.ok(deepest(made) < 250, text.slice(0, 20));
  }
});
