// A client on version 1 of the TypeScript SDK.
// Usage: node client-v1.mjs STEPS legacy URL | node client-v1.mjs STEPS legacy COMMAND ARG...
// STEPS is calls or reads.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [steps, , target, ...args] = process.argv.slice(2);
const { run } = await import(`./${steps}.mjs`);
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, stderr: 'ignore' });

// The client tells its transport which version was agreed on.
let version;
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (v) => {
  version = v;
  tell?.(v);
};

const client = new Client({ name: 'integration', version: '1' });
await client.connect(transport);
await run({
  client,
  version,
  call: (params, onprogress) => client.callTool(params, undefined, { onprogress }),
  onUpdate: (heard) =>
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => heard(n.params.uri)),
  watch: async (uri) => {
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
});
