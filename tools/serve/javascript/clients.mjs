// The packages openai and ai against `llm-demo serve` with the embedded model.
//
// usage: node clients.mjs BASE KEY     run by javascript_clients.py

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

// What the embedded model answers to "Once upon a time" first.
const STORY = ", a cheerful boy named Tom lived on a quiet farm.";
const PROMPT = "Once upon a time";
const Walk = z.strictObject({ steps: z.number().int().min(0).max(99), forward: z.boolean() });
const [base, key] = process.argv.slice(2);
const versions = JSON.parse(readFileSync("package.json")).dependencies;

async function joined(parts, text) {
  let all = "";
  for await (const part of parts) all += text(part) ?? "";
  return all;
}

async function checkOpenAI() {
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
  const messages = [{ role: "user", content: PROMPT }];
  const ask = { model: "story", messages, temperature: 0, max_completion_tokens: 12 };
  assert.deepEqual((await client.models.list()).data.map((model) => model.id), ["story"]);
  const answer = await client.chat.completions.create(ask);
  assert.equal(answer.choices[0].message.content, STORY);
  assert.equal(answer.usage.total_tokens, 17);
  const chunks = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
  assert.equal(await joined(chunks, (chunk) => chunk.choices[0]?.delta.content), STORY);
  const stream = client.chat.completions.stream({ ...ask, logprobs: true, top_logprobs: 2 });
  const [choice] = (await stream.finalChatCompletion()).choices;
  assert.equal(choice.logprobs.content.map((token) => token.token).join(""), STORY);
  assert.equal((await client.chat.completions.create({ ...ask, n: 2 })).choices.length, 2);
  const texts = await client.completions.create({ model: "story", prompt: [PROMPT, PROMPT], max_tokens: 12, temperature: 0 });
  assert.deepEqual(texts.choices.map((choice) => choice.text), [STORY, STORY]);

  const warm = { ...ask, temperature: 1.2, seed: 3, max_completion_tokens: 120 };
  const parsed = await client.chat.completions.parse({ ...warm, response_format: zodResponseFormat(Walk, "walk") });
  assert(Walk.safeParse(parsed.choices[0].message.parsed).success);
  const go = { type: "function", function: { name: "go", parameters: z.toJSONSchema(Walk), strict: true } };
  const called = await client.chat.completions.create({ ...warm, tools: [go], tool_choice: "required", parallel_tool_calls: false });
  const [call] = called.choices[0].message.tool_calls;
  Walk.parse(JSON.parse(call.function.arguments));
  const told = [...messages, called.choices[0].message, { role: "tool", tool_call_id: call.id, content: "Done." }];
  assert((await client.chat.completions.create({ ...ask, messages: told, tools: [go] })).choices[0].message.content);

  const response = await client.responses.create({ model: "story", input: PROMPT, temperature: 0, max_output_tokens: 12 });
  assert.equal(response.output_text, STORY);
  const input = [PROMPT, "The little fox"];
  const [bytes, floats] = await Promise.all(
    [undefined, "float"].map((encoding_format) => client.embeddings.create({ model: "story", input, encoding_format })));
  assert.equal(bytes.data.length, 2);
  bytes.data[0].embedding.forEach((value, at) => assert(Math.abs(value - floats.data[0].embedding[at]) < 1e-6));
  await assert.rejects(client.chat.completions.create({ ...ask, n: 200 }), OpenAI.BadRequestError);
  await assert.rejects(client.withOptions({ apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
  console.log(`openai ${versions.openai}: passed`);
}

// What all providers of the package ai have; `functions` is whether the interface has functions.
async function checkModel(model, functions) {
  const ask = { model, prompt: PROMPT, temperature: 0, maxOutputTokens: 12, maxRetries: 0 };
  const answer = await generateText(ask);
  assert.equal(answer.text, STORY);
  assert.equal(answer.usage.outputTokens, 12);
  const stream = streamText(ask);
  assert.equal(await joined(stream.textStream, (text) => text), STORY);
  assert.equal(await stream.finishReason, "length");
  const warm = { ...ask, temperature: 1.2, maxOutputTokens: 120 };
  Walk.parse((await generateObject({ ...warm, schema: Walk })).object);
  const object = streamObject({ ...warm, schema: Walk });
  await joined(object.textStream, (text) => text);
  Walk.parse(await object.object);
  if (!functions) return;
  const walked = [];
  const go = tool({ description: "Walk", inputSchema: Walk, execute: (walk) => void walked.push(walk) ?? "Done." });
  const called = { ...warm, tools: { go }, toolChoice: "required" };
  assert.equal((await generateText({ ...called, stopWhen: stepCountIs(2) })).steps.length, 2);
  assert((await streamText(called).toolCalls).length > 0);
  walked.forEach((walk) => Walk.parse(walk));
  assert(walked.length > 2, walked);
}

async function checkAI() {
  const server = { name: "story", baseURL: `${base}/v1`, apiKey: key };
  const compatible = createOpenAICompatible({ ...server, includeUsage: true, supportsStructuredOutputs: true });
  const openai = createOpenAI(server);
  await checkModel(compatible("story"), true);
  await checkModel(openai.chat("story"), true);
  await checkModel(openai.responses("story"), false);
  for (const provider of [compatible.completionModel("story"), openai.completion("story")]) {
    const ask = { model: provider, prompt: "Once upon a time", temperature: 0, maxOutputTokens: 12, maxRetries: 0 };
    assert((await generateText(ask)).text.length > 0);
  }
  for (const model of [compatible.textEmbeddingModel("story"), openai.textEmbeddingModel("story")]) {
    const { embedding } = await embed({ model, value: PROMPT });
    const { embeddings } = await embedMany({ model, values: [PROMPT, "The little fox"] });
    assert.deepEqual(embeddings[0], embedding);
  }
  for (const name of ["ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai"]) console.log(`${name} ${versions[name]}: passed`);
}

await checkOpenAI();
await checkAI();
