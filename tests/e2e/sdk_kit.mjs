// The official MCP clients: how the tests load them, connect them, and look at what they get.

import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { equal, must } from '../conformance/report.mjs';
import { PACKAGES, PROGRAM, SLOW, place } from '../conformance/server.mjs';

export const TIMEOUT = { timeout: 60000 * SLOW };

async function load(specifier) {
  const resolved = createRequire(path.join(PACKAGES, 'x.cjs')).resolve(specifier);
  return import(pathToFileURL(resolved).href);
}

// The client library of the tasks extension. It can only be imported, and not by name from here.
export function loadTasks() {
  const file = path.join(PACKAGES, 'node_modules/@modelcontextprotocol/ext-tasks/dist/client/index.js');
  return import(pathToFileURL(file).href);
}

// Both generations with the same names. call(client, params, options) is callTool.
export async function loadSdks() {
  const main = await load('@modelcontextprotocol/client');
  const v2 = { generation: 2, Client: main.Client, Http: main.StreamableHTTPClientTransport,
    Sse: main.SSEClientTransport, Stdio: (await load('@modelcontextprotocol/client/stdio')).StdioClientTransport,
    call: (client, params, options) => client.callTool(params, options) };
  const old = name => load(`@modelcontextprotocol/sdk/client/${name}.js`);
  const v1 = { generation: 1, Client: (await old('index')).Client,
    Http: (await old('streamableHttp')).StreamableHTTPClientTransport,
    Sse: (await old('sse')).SSEClientTransport, Stdio: (await old('stdio')).StdioClientTransport,
    schemas: await load('@modelcontextprotocol/sdk/types.js'),
    call: (client, params, options) => client.callTool(params, undefined, options) };
  return { v1, v2 };
}

// Reads the server's stdout beside the SDK, which passes over what it cannot parse.
function watch(child, record) {
  let pending = Buffer.alloc(0);
  child.stdout.on('data', chunk => {
    pending = Buffer.concat([pending, chunk]);
    for (let nl; (nl = pending.indexOf(10)) >= 0; pending = pending.subarray(nl + 1)) {
      const line = pending.subarray(0, nl);
      try {
        const m = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(line));
        if (m.jsonrpc !== '2.0') throw new Error('no JSON-RPC');
        record.messages.push(m);
      } catch (e) {
        record.odd.push(`${e.message}: ${line.toString('latin1', 0, 100)}`);
      }
    }
  });
  child.stdout.on('end', () => {
    if (pending.length) record.odd.push(`${pending.length} bytes without an end`);
  });
  child.once('exit', (code, signal) => {
    record.end = { code, signal, at: performance.now() };
  });
}

function stdio(sdk, args, record) {
  const { env, remove } = place();
  record.remove = remove;
  const transport = new sdk.Stdio({ command: PROGRAM, args, env, stderr: 'inherit' });
  const begin = transport.start.bind(transport);
  transport.start = () => {
    const begun = begin(); // spawns before it returns
    watch(transport._process, record);
    return begun;
  };
  return transport;
}

function negotiation(era) {
  if (era === 'legacy') return {};
  const mode = era === 'modern' ? { pin: '2026-07-28' } : 'auto';
  return { versionNegotiation: { mode, probe: { timeoutMs: 5000 * SLOW } } };
}

// Connects. options: era ("legacy", "auto", "modern"); url (".../mcp" or ".../sse") or args of a
// server over stdio; capabilities; prepare(client), called before the connection.
export async function open(sdk, { era = 'legacy', url, args = [], capabilities = {}, prepare } = {}) {
  const record = { messages: [], odd: [], errors: [], end: null };
  const Kind = url?.endsWith('/sse') ? sdk.Sse : sdk.Http;
  const transport = url ? new Kind(new URL(url)) : stdio(sdk, args, record);
  const client = new sdk.Client({ name: 'tests', version: '1.0.0' }, { capabilities, ...negotiation(era) });
  client.onerror = e => record.errors.push(String(e?.message ?? e));
  prepare?.(client);
  await client.connect(transport, TIMEOUT);
  const call = (params, options = {}) => sdk.call(client, params, { ...TIMEOUT, ...options });
  return { sdk, client, record, url, call };
}

// Closes, and sees that a server over stdio ends well.
export async function close({ client, record, url }) {
  const asked = performance.now();
  await client.close();
  if (url) return;
  for (let i = 0; i < 60 * SLOW && !record.end; i++) await sleep(50);
  record.remove();
  must(record.end, 'the server still runs');
  equal([record.end.code, record.end.signal], [0, null], 'its end');
  must(record.end.at - asked < 1500 * SLOW, `it took ${Math.round(record.end.at - asked)} ms`);
  equal(record.odd, [], 'odd lines on stdout');
}

export const python = (code, seconds) => ({
  name: 'run_code',
  arguments: { language: 'python', code, ...(seconds ? { timeout_seconds: seconds } : {}) }
});

export const history = limit => ({ name: 'get_execution_history', arguments: { limit } });
