// Steps about prompts, resources, templates, completion and subscriptions of the everything server, which every client
// goes through for each of the servers in SERVERS, a JSON array of {id, prefix, alias}: what stands before the names of
// the server's prompts and tools, and before the URIs of its resources. What the client was given is printed as one
// JSON object, with the names and URIs of the server itself.

import { setTimeout } from 'node:timers/promises';

const servers = JSON.parse(process.env.SERVERS);
const own = 'demo://resource/';

// client is connected; watch(uri) subscribes to a resource, and returns what ends the subscription; heard is told
// of every update.
export async function run({ client, version, call, onUpdate, watch }) {
  const heard = updates();
  onUpdate(heard.add);

  // A server that was just started may still be missing.
  let prompts, resources, templates;
  const until = Date.now() + 60_000;
  for (;;) {
    ({ prompts } = await client.listPrompts());
    ({ resources } = await client.listResources());
    ({ resourceTemplates: templates } = await client.listResourceTemplates());
    const there = ({ prefix, alias }) =>
      prompts.some((p) => p.name.startsWith(prefix)) &&
      resources.some((r) => r.uri.startsWith(alias + own)) &&
      templates.some((r) => r.uriTemplate.startsWith(alias + own));
    if (servers.every(there) || Date.now() > until) break;
    await setTimeout(20);
  }

  const seen = { version, servers: {} };
  for (const server of servers) {
    const lists = {
      prompts: theirs(prompts, 'name', server.prefix, ''),
      resources: theirs(resources, 'uri', server.alias, own),
      templates: theirs(templates, 'uriTemplate', server.alias, own),
    };
    seen.servers[server.id] = { ...lists, ...(await read(client, server, lists)) };
    seen.servers[server.id].updates = await hear(call, watch, heard, server, lists.resources);
  }
  await client.close();
  console.log(JSON.stringify(seen));
}

// theirs are the entries of one server, by its own names, and in their order.
function theirs(list, key, before, start) {
  return list
    .filter((entry) => entry[key].startsWith(before + start))
    .map((entry) => ({ ...entry, [key]: entry[key].slice(before.length) }))
    .sort((a, b) => (a[key] < b[key] ? -1 : 1));
}

// read gets all prompts and reads all resources of a server, and completes arguments of both.
async function read(client, { prefix, alias }, { resources, templates }) {
  const seen = { got: {}, contents: {}, completed: [] };
  for (const [name, args] of [
    ['simple-prompt', undefined],
    ['args-prompt', { city: 'Łódź', state: 'PL' }],
    ['args-prompt', { city: '"', state: '\u2028' }],
    ['completable-prompt', { department: 'Sales', name: 'Eve' }],
    ['resource-prompt', { resourceType: 'Text', resourceId: '3' }],
    ['resource-prompt', { resourceType: 'Blob', resourceId: '4' }],
  ]) {
    seen.got[`${name} ${JSON.stringify(args)}`] = await client.getPrompt({ name: prefix + name, arguments: args });
  }
  seen.refused = await code(client.getPrompt({ name: `${prefix}args-prompt`, arguments: {} }));

  const instances = templates.map((t) => t.uriTemplate.replace('{resourceId}', '7'));
  for (const uri of [...resources.map((r) => r.uri), ...instances]) {
    seen.contents[uri] = await client.readResource({ uri: alias + uri });
  }
  seen.missing = await code(client.readResource({ uri: `${alias}demo://resource/nothing` }));

  for (const [ref, argument, known] of [
    [{ type: 'ref/prompt', name: `${prefix}completable-prompt` }, { name: 'department', value: 'S' }, undefined],
    [{ type: 'ref/prompt', name: `${prefix}completable-prompt` }, { name: 'name', value: '' }, { department: 'Sales' }],
    ...templates.map((t) => [
      { type: 'ref/resource', uri: alias + t.uriTemplate },
      { name: 'resourceId', value: '12' },
      undefined,
    ]),
  ]) {
    const { completion } = await client.complete({ ref, argument, ...(known && { context: { arguments: known } }) });
    seen.completed.push(completion);
  }
  return seen;
}

// hear watches two resources of a server and gives one up again, before the server makes up updates of all that is
// watched, and returns what was heard until the other one's came. The server tells of the one given up first.
async function hear(call, watch, heard, { prefix, alias }, resources) {
  const [given, kept] = resources.map((r) => alias + r.uri);
  const stops = [await watch(given), await watch(kept)];
  await stops[0]();
  heard.forget();
  const toggle = { name: `${prefix}toggle-subscriber-updates`, arguments: {} };
  await call(toggle);
  await heard.wait(kept);
  await call(toggle);
  await stops[1]();
  return heard.all().map((uri) => uri.slice(alias.length));
}

// code is the code and text of the error that a request ends with.
async function code(request) {
  try {
    return { result: await request };
  } catch (e) {
    return { code: e.code, message: e.message };
  }
}

// updates keeps each URI that was heard of, once.
function updates() {
  const uris = new Set();
  let wake = () => {};
  return {
    add: (uri) => {
      uris.add(uri);
      wake();
    },
    forget: () => uris.clear(),
    all: () => [...uris],
    wait: async (uri) => {
      while (!uris.has(uri)) await new Promise((resolve) => (wake = resolve));
    },
  };
}
