// Tasks (the extension of 2026-07-28) as the official client library for them sees it, over HTTP, with
// the tools that the conformance tests use.

import { equal, test } from '../conformance/report.mjs';
import { loadTasks, open } from './sdk_kit.mjs';

const VERSION = '2026-07-28';
const ENDPOINT_HEADERS = {
  'Content-Type': 'application/json',
  Accept: 'application/json, text/event-stream',
  'MCP-Protocol-Version': VERSION
};
const CLIENT = { name: 'tests', version: '1.0.0' };
const FRAMING = { protocolVersion: VERSION, clientInfo: CLIENT, clientCapabilities: { elicitation: {}, sampling: {} } };

// The SDK's own client refuses the results of the extension, so its requests go out by themselves.
function dispatcher(url) {
  let id = 0;
  return async request => {
    const { name, taskId } = request.params;
    const response = await fetch(url, {
      method: 'POST',
      headers: { ...ENDPOINT_HEADERS, 'Mcp-Method': request.method, 'Mcp-Name': taskId ?? name },
      body: JSON.stringify({ jsonrpc: '2.0', id: ++id, ...request })
    });
    const { result, error } = await response.json();
    return error ? { kind: 'error', error } : { kind: 'result', result };
  };
}

async function answer({ kind, params }) {
  equal(kind, 'elicitation', 'what it asks for');
  const [name] = Object.keys(params.requestedSchema.properties);
  return { action: 'accept', content: { [name]: name === 'confirm' ? true : 'Ann' } };
}

// Calls a tool and waits for the end of its task. Resolves to { kind, status, text, isError, code }.
async function settle(session, tool, args, meanwhile) {
  const execution = await session.callTool(tool, args);
  await meanwhile?.(execution);
  const { outcome } = await execution.settle();
  const { status, result, error } = outcome;
  return { kind: execution.kind, status, text: result?.content[0].text, isError: result?.isError ?? false,
    code: error?.code };
}

// Tool, arguments, what must come of it.
const CALLS = [
  ['greet', { name: 'Ann' }, { kind: 'immediate', status: 'completed', text: 'Hello, Ann!' }],
  ['slow_compute', { seconds: 0, label: 'a' }, { kind: 'immediate', status: 'completed', text: 'computed a' }],
  ['slow_compute', { seconds: 1, label: 'b' }, { kind: 'task', status: 'completed', text: 'computed b' }],
  ['failing_job', {}, { kind: 'task', status: 'completed', isError: true }],
  ['protocol_error_job', {}, { kind: 'task', status: 'failed', code: -32603 }],
  ['confirm_delete', { filename: 'x' }, { kind: 'task', status: 'completed', text: 'deleted x' }],
  ['multi_input', {}, { kind: 'task', status: 'completed' }],
  ['test_tool_with_task', {}, { kind: 'task', status: 'completed', text: 'Hello, Ann!' }]
];

export async function tasks(sdk, url) {
  let session, connection;
  await test('tasks: the client library takes the server as one with tasks', async () => {
    const { createTaskSessionFromClient } = await loadTasks();
    connection = await open(sdk, { url, era: 'modern', capabilities: FRAMING.clientCapabilities });
    session = createTaskSessionFromClient(connection.client, { endpointId: url, rawDispatch: dispatcher(url),
      v2RequestFraming: FRAMING, onInputRequest: answer });
  });
  if (!session) return;
  await Promise.all(CALLS.map(([tool, args, wanted]) => test(`tasks: ${tool} ${JSON.stringify(args)}`, async () => {
    const got = await settle(session, tool, args);
    for (const [key, value] of Object.entries(wanted)) equal(got[key], value, `${key} of ${JSON.stringify(got)}`);
  })));
  await test('tasks: cancels', async () => {
    const got = await settle(session, 'slow_compute', { seconds: 60 }, execution => execution.cancel());
    equal([got.kind, got.status], ['task', 'cancelled'], 'outcome');
  });
  await test('tasks: closes', async () => {
    await session.close();
    await connection.client.close();
  });
}
