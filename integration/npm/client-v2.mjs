// A client on version 2 of the TypeScript SDK.
// Usage: node client-v2.mjs STEPS MODE URL | node client-v2.mjs STEPS MODE COMMAND ARG...
// STEPS is calls or reads; MODE is legacy, auto, or a protocol version to insist on.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [steps, mode, target, ...args] = process.argv.slice(2);
const { run } = await import(`./${steps}.mjs`);
const transport = target.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, stderr: 'ignore' });

const client = new Client(
  { name: 'integration', version: '1' },
  { versionNegotiation: { mode: /^\d/.test(mode) ? { pin: mode } : mode } },
);
await client.connect(transport);
await run({
  client,
  version: client.getNegotiatedProtocolVersion(),
  call: (params, onprogress) => client.callTool(params, { onprogress }),
  onUpdate: (heard) => client.setNotificationHandler('notifications/resources/updated', (n) => heard(n.params.uri)),
  watch: async (uri) => {
    if (client.getProtocolEra() === 'modern') {
      const subscription = await client.listen({ resourceSubscriptions: [uri] });
      return () => subscription.close();
    }
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  },
});
