// Steps about tools, which every client goes through; what it was given is printed as one JSON object.

import { setTimeout } from 'node:timers/promises';

const servers = ['everything_', 'files_', 'memory_', 'old_', 'web_'];

// client is connected; call(params, onprogress) calls a tool.
export async function run({ client, version, call }) {
  const seen = { version, progress: [] };

  // A server that was just started may still be missing.
  const until = Date.now() + 60_000;
  for (;;) {
    seen.tools = (await client.listTools()).tools.map((t) => t.name);
    if (servers.every((id) => seen.tools.some((name) => name.startsWith(id))) || Date.now() > until) break;
    await setTimeout(20);
  }

  seen.text = (await call({ name: 'everything_echo', arguments: { message: 'hello' } })).content[0].text;
  seen.structure = (
    await call({ name: 'everything_get-structured-content', arguments: { location: 'New York' } })
  ).structuredContent;
  const refused = await call({ name: 'files_read_text_file', arguments: { path: '/etc/passwd' } });
  if (refused.isError) seen.toolError = refused.content[0].text;
  try {
    await call({ name: 'no_such_tool', arguments: {} });
  } catch (e) {
    seen.code = e.code;
    seen.message = e.message;
  }
  await call({ name: 'everything_trigger-long-running-operation', arguments: { duration: 0.3, steps: 3 } }, (p) =>
    seen.progress.push(p.progress),
  );
  await client.close();
  console.log(JSON.stringify(seen));
}
