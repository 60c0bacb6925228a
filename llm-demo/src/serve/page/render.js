// Markdown as nodes of the page. A text that grows changes the blocks at its end alone.

import { button, copy, element } from "./dom.js";
import { parse } from "./markdown.js";

// Sources of the blocks that a container has.
const shown = new WeakMap();

/// Shows a text in a container, which nothing else changes.
export function show(container, text) {
  const blocks = parse(text);
  const before = shown.get(container) ?? [];
  let same = 0;
  while (same < blocks.length && before[same] === blocks[same].source) same += 1;
  while (container.childNodes.length > same) container.lastChild.remove();
  container.append(...blocks.slice(same).map(block));
  shown.set(container, blocks.map(({ source }) => source));
}

function block(it) {
  switch (it.type) {
    case "heading":
      // Below the headings of the page itself.
      return element(`h${Math.min(it.level + 2, 6)}`, {}, ...it.children.map(span));
    case "code":
      return code(it);
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...it.blocks.map(block));
    case "list":
      return list(it);
    case "table":
      return table(it);
    default:
      return element("p", {}, ...it.children.map(span));
  }
}

function code({ language, text }) {
  const button_ = button("Copy", "Copy the code", () => copy(text, button_));
  const head = element("div", { className: "code-head" }, element("span", {}, language || "text"), button_);
  const body = element("pre", { tabIndex: 0 }, element("code", {}, text));
  return element("div", { className: "code" }, head, body);
}

function list({ start, tight, items }) {
  const made = start === null ? element("ul") : element("ol", { start });
  for (const { done, blocks } of items) {
    const item = element("li");
    if (done !== null) {
      item.className = "task";
      item.append(element("input", { type: "checkbox", checked: done, disabled: true }), " ");
    }
    for (const it of blocks) {
      if (tight && it.type === "paragraph") item.append(...it.children.map(span));
      else item.append(block(it));
    }
    made.append(item);
  }
  return made;
}

function table({ align, head, rows }) {
  const row = (name) => (cells) =>
    element("tr", {}, ...cells.map((cell, column) =>
      element(name, { className: align[column] ?? "" }, ...cell.map(span))));
  const made = element("table", {}, element("thead", {}, row("th")(head)),
    element("tbody", {}, ...rows.map(row("td"))));
  return element("div", { className: "table", tabIndex: 0 }, made);
}

function span(it) {
  switch (it.type) {
    case "text":
      return document.createTextNode(it.text);
    case "break":
      return element("br");
    case "code":
      return element("code", {}, it.text);
    case "link": {
      const link = { href: it.href, target: "_blank", rel: "noopener noreferrer", title: it.href };
      return element("a", link, ...it.children.map(span));
    }
    default: {
      const names = { strong: "strong", emphasis: "em", strike: "s" };
      return element(names[it.type], {}, ...it.children.map(span));
    }
  }
}
