// Calls models with the official SDKs from npm, as the environment points them: one line of JSON per call, with what came
// back.
//
//     models.mjs FOLDER anthropic|openai old|new
import { createRequire } from "node:module";

const [folder, api, generation] = process.argv.slice(2);
const sdk = createRequire(`${folder}/`)(`${api}-${generation}`);
const Client = sdk.default ?? sdk;
const say = (kind, said) => console.log(JSON.stringify({ kind, ...said }));
const messages = [{ role: "user", content: "Say hello." }];

async function anthropic() {
  const client = new Client();
  const asked = { model: "claude-opus-4", max_tokens: 64, messages };
  const whole = await client.messages.create(asked);
  say("whole", { text: whole.content[0].text, output: whole.usage.output_tokens });
  let text = "";
  const stream = client.messages.stream(asked).on("text", (piece) => (text += piece));
  const last = await stream.finalMessage();
  say("stream", { text, output: last.usage.output_tokens });
  try {
    await client.messages.create({ ...asked, model: "claude-refused" });
    say("error", { status: 0 });
  } catch (error) {
    say("error", { status: error.status, message: error.error.error.message });
  }
}

async function openai() {
  const client = new Client();
  const whole = await client.chat.completions.create({ model: "gpt-5", messages });
  say("whole", { text: whole.choices[0].message.content, output: whole.usage.completion_tokens });
  let text = "";
  const chunks = await client.chat.completions.create({
    model: "gpt-5", messages, stream: true, stream_options: { include_usage: true },
  });
  for await (const chunk of chunks) {
    text += chunk.choices[0]?.delta?.content ?? "";
    if (chunk.usage) say("stream", { text, output: chunk.usage.completion_tokens });
  }
  text = "";
  const events = await client.responses.create({ model: "gpt-5", input: "Say hello.", stream: true });
  for await (const event of events) {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") say("responses", { text, output: event.response.usage.output_tokens });
  }
  try {
    await client.chat.completions.create({ model: "gpt-refused", messages });
    say("error", { status: 0 });
  } catch (error) {
    say("error", { status: error.status, message: error.error.message });
  }
}

await { anthropic, openai }[api]();
