// A client on version 2 of the TypeScript SDK.
// Usage: node client-v2.mjs MODE URL | node client-v2.mjs MODE COMMAND ARG...
// MODE is legacy, auto, or a protocol version to insist on.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { run } from './steps.mjs';

const [mode, target, ...args] = process.argv.slice(2);
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, stderr: 'ignore' });

const client = new Client(
  { name: 'integration', version: '1' },
  { versionNegotiation: { mode: /^\d/.test(mode) ? { pin: mode } : mode } },
);
await client.connect(transport);
await run(client, client.getNegotiatedProtocolVersion(), (params, onprogress) =>
  client.callTool(params, { onprogress }),
);
