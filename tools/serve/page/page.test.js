// The page in Chromium, with the embedded model on the software device.
//
// LLM_DEMO is the program, CHROMIUM a browser other than Debian's. With SCREENSHOTS=FOLDER the pages at three widths,
// light and dark, are put there.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

const STORY = ", a cheerful boy named Tom lived on a quiet farm.";
const PATIENCE = 60_000;
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const RICH = "## A plan\n\n1. **Flash** it\n   - and `wait`\n2. [Read](https://example.com/a)\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n" +
  `\`\`\`rust\nlet kernel = device.load(code)?; // ${"wide ".repeat(40)}\n\`\`\`\n\n> quoted\n\n- [x] done <img src=x onerror="window.harmed = 1">`;

let program;
let browser;
let base;

before(async () => {
  const template = join(mkdtempSync(join(tmpdir(), "page-")), "template.jinja");
  writeFileSync(template, "{% for m in messages %}{{ m.content }}{% endfor %}");
  const options = ["serve", "--port", "0", "--template", template, "--device", "sim", "--alias", "story", "--api-key", "secret", "--temp", "0"];
  const { HCQ_DEVICE, RUST_LOG, ...env } = process.env;
  program = spawn(process.env.LLM_DEMO ?? "llm-demo", options, { stdio: ["ignore", "ignore", "pipe"], env });
  for await (const line of createInterface(program.stderr)) {
    [, base] = /listening on (\S+)/.exec(line) ?? [];
    if (base) break;
  }
  assert.ok(base, "the server ended");
  program.stderr.resume();
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
});

after(async () => {
  await browser?.close();
  program.kill("SIGTERM");
  const code = program.exitCode ?? (await new Promise((ended) => program.on("exit", ended)));
  assert.equal(code, 0);
});

// A page of a browser without a past; `check` gets it, and nothing may have gone wrong by then.
async function opened(options, check) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const problems = [];
  // Refusals of the server, and the one that a test provokes: where the page's own code does, it throws.
  const isRefusal = (text) => /^Failed to load resource|requires 'TrustedHTML'/.test(text);
  page.on("console", (message) => message.type() === "error" && !isRefusal(message.text()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => request.url().startsWith(base) || /^(blob|data):/.test(request.url()) || problems.push(request.url()));
  await page.goto(base);
  await check(page);
  assert.deepEqual(problems, []);
  assert.equal(await page.evaluate("window.harmed"), undefined);
  await context.close();
}

const withKey = (check, options = {}) => opened(options, async (page) => {
  await page.evaluate(() => localStorage.setItem("llm-demo.settings", '{"key": "secret"}'));
  await page.reload();
  await page.getByText("story", { exact: true }).first().waitFor();
  await check(page);
});

async function ask(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
}

const idle = (page) => page.locator("#send").waitFor();
const texts = (page) => page.locator(".message .body").allInnerTexts();
const has = (page, text) => page.getByText(text).first().waitFor();
const event = (data) => `data: ${JSON.stringify(data)}\n\n`;
const answered = (text) => event({ choices: [{ delta: { content: text }, finish_reason: "stop" }] }) +
  event({ choices: [], usage: { prompt_tokens: 700, completion_tokens: 20 } }) + "data: [DONE]\n\n";
// Answers in the server's place, by turns.
async function answers(page, ...all) {
  await page.route("**/v1/chat/completions", (route) => {
    const next = all.length > 1 ? all.shift() : all[0];
    if (next === "lost") return route.abort("connectionrefused");
    return route.fulfill(typeof next === "string" ? { contentType: "text/event-stream", body: next } : next);
  });
}

test("the key is asked for, and kept; an answer is streamed", () => opened({}, async (page) => {
  await page.getByRole("button", { name: "Enter the key" }).click();
  await page.getByLabel("API key").fill("secret");
  await page.getByRole("button", { name: "Save" }).first().click();
  await has(page, "0 of 1,024 tokens");
  await ask(page, "Once upon a time");
  await has(page, STORY);
  await idle(page);
  assert.match(await page.locator(".stats").textContent(), /\d+ tokens · [\d.]+ tokens\/s · first after [\d.]+ s/);
  assert.match(await page.locator("#used").textContent(), /^\d+ of 1,024 tokens$/);
  await page.reload();
  await page.getByRole("button", { name: "Once upon a time" }).click();
  await has(page, STORY);
}));

test("Escape and the button stop an answer, which is kept; another one is asked for", () => withKey(async (page) => {
  await ask(page, "Once upon a time");
  await has(page, ", a cheerful");
  await page.keyboard.press("Escape");
  await has(page, "Stopped.");
  await page.getByRole("button", { name: "Another answer" }).click();
  await page.getByRole("button", { name: "Stop the answer" }).click();
  await idle(page);
  const metrics = async () => (await fetch(`${base}/metrics`, { headers: { Authorization: "Bearer secret" } })).text();
  for (let tries = 0; !/cancelled_requests_total 2$/m.test(await metrics()); tries += 1) {
    assert.ok(tries < 50, await metrics());
    await page.waitForTimeout(100);
  }
}));

test("messages are edited, answers made again, and both undone", () => withKey(async (page) => {
  await answers(page, ...["one", "two", "three", "four"].map(answered));
  await ask(page, "a");
  await idle(page);
  await ask(page, "b");
  await has(page, "two");
  assert.deepEqual(await texts(page), ["a", "one", "b", "two"]);
  await page.getByRole("button", { name: "Edit the message" }).first().click();
  await page.getByLabel("The message, edited").fill("c");
  await page.getByRole("button", { name: "Go on from here" }).click();
  await has(page, "three");
  assert.deepEqual(await texts(page), ["c", "three"]);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.deepEqual(await texts(page), ["a", "one", "b", "two"]);
  await page.getByRole("button", { name: "Another answer" }).first().click();
  await has(page, "four");
  assert.deepEqual(await texts(page), ["a", "four"]);
  await page.getByRole("button", { name: "Edit the message" }).nth(1).click();
  await page.getByLabel("The message, edited").fill("five");
  await page.getByRole("button", { name: "Keep the text" }).click();
  await page.getByRole("button", { name: "Edit the message" }).first().click();
  await page.keyboard.press("Escape");
  assert.deepEqual(await texts(page), ["a", "five"]);
}));

test("settings are part of a request", () => withKey(async (page) => {
  const bodies = [];
  await page.route("**/v1/chat/completions", (route) => {
    bodies.push(route.request().postDataJSON());
    return route.fulfill({ contentType: "text/event-stream", body: answered("d") });
  });
  await page.getByRole("button", { name: "Settings" }).click();
  assert.equal(await page.getByLabel("Top k").getAttribute("placeholder"), "40");
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Temperature").fill("9");
  await page.locator("#settings-save").click();
  assert.ok(await page.locator("#settings").isVisible(), "9 is too much");
  await page.getByLabel("Temperature").fill("0.5");
  await page.getByLabel("Seed").fill("7");
  await page.getByLabel("Colors").selectOption("dark");
  await page.locator("#settings-save").click();
  await ask(page, "a");
  await has(page, "20 tokens");
  const [{ messages, temperature, seed, top_k }] = bodies;
  assert.deepEqual([messages, temperature, seed, top_k], [[{ role: "system", content: "Be brief." }, { role: "user", content: "a" }], 0.5, 7, undefined]);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
}));

test("conversations are renamed, deleted, exported and imported", () => withKey(async (page) => {
  await answers(page, answered("b"));
  await ask(page, "a");
  await idle(page);
  const action = async (name) => {
    await page.getByRole("button", { name: "This conversation" }).click();
    await page.getByRole("button", { name, exact: true }).click();
  };
  await action("Rename");
  await page.getByLabel("Title").fill("Mine");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Mine" }).waitFor();
  const download = page.waitForEvent("download");
  await action("Export");
  const file = await (await download).path();
  assert.deepEqual(JSON.parse(readFileSync(file)).conversations[0].messages.map(({ content }) => content), ["a", "b"]);
  await action("Delete");
  assert.equal(await page.locator("#list li").count(), 0);
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await page.locator("#list li").count(), 1);
  await page.locator("#file").setInputFiles({ name: "a.json", mimeType: "application/json", buffer: readFileSync(file) });
  await has(page, "A conversation is imported.");
  assert.equal(await page.locator("#list li").count(), 2);
  await page.locator("#file").setInputFiles({ name: "a.json", mimeType: "application/json", buffer: Buffer.from("{") });
  await has(page, "The file is no JSON.");
}));

test("a full storage is said, and nothing is lost before the tab is", () => withKey(async (page) => {
  await answers(page, answered("b"));
  await page.evaluate(() => {
    for (let size = 1 << 20; size > 0; size >>= 1) {
      try {
        for (let n = 0; ; n += 1) localStorage.setItem(`full.${size}.${n}`, "x".repeat(size));
      } catch {
        // Then half of it.
      }
    }
  });
  await ask(page, "a long question that has no room");
  await has(page, "The browser's storage is full");
  await idle(page);
  assert.deepEqual(await texts(page), ["a long question that has no room", "b"]);
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByRole("button", { name: "a long question" }).click();
  assert.deepEqual(await texts(page), ["a long question that has no room", "b"]);
}));

test("failures are answers, and the question is kept", () => withKey(async (page) => {
  const refused = (status, message, headers = {}) => ({ status, headers, json: { error: { message } } });
  const cut = event({ choices: [{ delta: { content: "half" } }] });
  await answers(page, refused(429, "as many wait as may", { "retry-after": "1" }), refused(503, "the engine failed"), "lost", cut, answered("b"));
  const again = () => page.getByRole("button", { name: "Ask again" }).click();
  await ask(page, "a");
  await has(page, "The server is busy: as many wait as may.");
  await again();
  await has(page, "the engine failed.");
  await again();
  await has(page, "The server cannot be reached.");
  await again();
  await has(page, "The connection broke");
  assert.deepEqual(await texts(page), ["a", "half"]);
  await again();
  await has(page, "20 tokens");
  assert.deepEqual(await texts(page), ["a", "b"]);
}));

test("texts are text: nothing of them becomes a part of the page", () => withKey(async (page) => {
  const evil = "<img src=x onerror='window.harmed = 1'><script>window.harmed = 1</script>";
  await answers(page, answered(`${evil}\n\n[a](javascript:window.harmed=1) \`\`\`${evil}\n# ${evil}\n| ${evil} |\n|-|`));
  await ask(page, evil);
  await has(page, "20 tokens");
  assert.equal((await texts(page))[0], evil);
  assert.ok((await texts(page))[1].includes(evil));
  assert.equal(await page.locator("#log img, #log script, #log a").count(), 0);
  // Nor could it: the page's permissions forbid it.
  const refused = await page.evaluate(() => {
    try {
      document.body.innerHTML = "<b>a</b>";
      return false;
    } catch {
      return true;
    }
  });
  assert.ok(refused);
}));

test("the page works by keyboard and fits a phone", () => withKey(async (page) => {
  await answers(page, answered(RICH));
  await page.locator("#text").focus();
  await page.keyboard.type("a");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("b");
  assert.equal(await page.inputValue("#text"), "a\nb");
  await page.keyboard.press("Enter");
  await has(page, "20 tokens");
  assert.ok(await page.locator("#text").evaluate((text) => text === document.activeElement));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} too wide`);
  await page.getByRole("button", { name: "Conversations" }).click();
  assert.ok(await page.locator("#new").evaluate((text) => text === document.activeElement));
  await page.keyboard.press("Escape");
  await page.locator("#side").waitFor({ state: "hidden" });
  // What one can press has a name.
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea, select")]
    .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)
    .filter((text) => !text.includes("disabled")));
  assert.deepEqual(nameless, []);
}, { viewport: { width: 360, height: 700 } }));

for (const width of [390, 800, 1400]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${width} points, ${colorScheme}`, { skip: !process.env.SCREENSHOTS }, () => withKey(async (page) => {
      await answers(page, answered(RICH), { status: 503, json: { error: { message: "the engine failed" } } });
      await ask(page, "How do I set up my board?");
      await has(page, "20 tokens");
      await ask(page, "And then?");
      await has(page, "the engine failed");
      await page.screenshot({ path: join(process.env.SCREENSHOTS, `${width}-${colorScheme}.png`) });
    }, { viewport: { width, height: 900 }, colorScheme }));
  }
}
