// The server as the official MCP client sees it. MCP_SDK_DIR: a folder with node_modules that hold
// @modelcontextprotocol/client; SR_PROGRAM: the server. Prints "ok" and "not ok" lines; the last
// line is "N passed, N failed". Status 1 when something failed.

import { createRequire } from 'node:module';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const PROGRAM = process.env.SR_PROGRAM ?? path.join(ROOT, 'build/sandbox-runner');
const SDK_DIR = path.resolve(process.env.MCP_SDK_DIR ?? path.join(ROOT, 'build/node'));
const SLOW = process.env.SR_FLAVOUR === 'asan' ? 4 : 1;
const TIMEOUT = { timeout: 60000 * SLOW };

let passed = 0;
let failed = 0;

async function test(name, body) {
  try {
    await body();
    passed++;
    console.log(`ok     ${name}`);
  } catch (e) {
    failed++;
    console.log(`not ok ${name}\n       ${String(e?.stack ?? e).split('\n').slice(0, 3).join('\n       ')}`);
  }
}

function must(condition, what) {
  if (!condition) throw new Error(what);
}

function equal(got, wanted, what) {
  must(JSON.stringify(got) === JSON.stringify(wanted), `${what}: ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
}

async function load(specifier) {
  const resolved = createRequire(path.join(SDK_DIR, 'x.cjs')).resolve(specifier);
  return import(pathToFileURL(resolved).href);
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

async function start(sdk, options = {}) {
  const state = mkdtempSync(path.join(tmpdir(), 'sandbox-runner-test-'));
  const env = { XDG_STATE_HOME: state };
  for (const name of ['DOCKER_HOST', 'ASAN_OPTIONS', 'UBSAN_OPTIONS']) {
    if (process.env[name]) env[name] = process.env[name];
  }
  const transport = new sdk.Stdio({ command: PROGRAM, args: [], env, stderr: 'inherit' });
  const record = { messages: [], odd: [], errors: [], end: null, state, starts: 0 };
  const begin = transport.start.bind(transport);
  transport.start = () => {
    const begun = begin(); // spawns before it returns
    record.starts++;
    watch(transport._process, record);
    return begun;
  };
  const client = new sdk.Client({ name: 'tests', version: '1.0.0' }, { capabilities: {}, ...options });
  client.onerror = e => record.errors.push(String(e?.message ?? e));
  await client.connect(transport, TIMEOUT);
  return { client, record };
}

async function stop({ client, record }) {
  const asked = performance.now();
  await client.close();
  for (let i = 0; i < 60 * SLOW && !record.end; i++) await sleep(50);
  rmSync(record.state, { recursive: true, force: true });
  must(record.end, 'the server still runs');
  equal([record.end.code, record.end.signal], [0, null], 'its end');
  must(record.end.at - asked < 1500 * SLOW, `it took ${Math.round(record.end.at - asked)} ms`);
  equal(record.odd, [], 'odd lines on stdout');
}

const python = (code, seconds) => ({
  name: 'run_code',
  arguments: { language: 'python', code, ...(seconds ? { timeout_seconds: seconds } : {}) }
});

async function legacyEra(sdk) {
  let session;
  await test('connects', async () => {
    session = await start(sdk);
    equal(session.client.getNegotiatedProtocolVersion(), '2025-11-25', 'version');
    equal(session.client.getServerVersion().name, 'sandbox-runner', 'name');
    must(session.client.getServerCapabilities().tools, 'no tools capability');
  });
  if (!session) return;
  const { client, record } = session;

  await test('lists three tools, with schemas that the client compiles', async () => {
    const { tools, nextCursor } = await client.listTools({}, TIMEOUT);
    equal(tools.map(t => t.name), ['run_code', 'list_supported_languages', 'get_execution_history'], 'names');
    must(nextCursor === undefined, 'a second page');
    for (const tool of tools) must(tool.inputSchema && tool.outputSchema && tool.annotations, tool.name);
  });
  await test('pings', async () => {
    await client.ping(TIMEOUT);
  });
  await test('runs Python', async () => {
    const result = await client.callTool(python('print(6 * 7)'), TIMEOUT);
    must(!result.isError, 'isError');
    equal(result.structuredContent.stdout, '42\n', 'stdout');
    equal(JSON.parse(result.content[0].text), result.structuredContent, 'the text part');
  });
  await test('runs C++', async () => {
    const code = '#include <iostream>\nint main() { std::cout << "hi"; return 3; }';
    const result = await client.callTool({ name: 'run_code', arguments: { language: 'cpp', code } }, TIMEOUT);
    equal([result.structuredContent.stdout, result.structuredContent.exit_code], ['hi', 3], 'result');
  });
  await test('takes results of every kind as valid', async () => {
    const wanted = { 'raise SystemExit(2)': 'error', 'import time; time.sleep(9)': 'timeout', 'import os; os.abort()': 'error' };
    for (const [code, status] of Object.entries(wanted)) {
      const result = await client.callTool(python(code, 1), TIMEOUT);
      equal(result.structuredContent.status, status, code);
    }
    const broken = await client.callTool({ name: 'run_code', arguments: { language: 'cpp', code: 'int main() {' } }, TIMEOUT);
    equal(broken.structuredContent.status, 'compile_error', 'broken C++');
  });
  await test('takes bytes of every value', async () => {
    const code = 'import os\nos.write(1, bytes(range(256)) * 3)\nos.write(2, "\\u2028\\u2029".encode() + b"\\xed\\xa0\\x80")';
    const result = await client.callTool(python(code), TIMEOUT);
    equal(result.structuredContent.stdout_bytes, 768, 'bytes');
    must(result.structuredContent.stdout.startsWith('\0\x01\x02'), 'the first characters');
  });
  await test('takes the largest outputs', async () => {
    const code = 'import sys\nsys.stdout.write("\\x01" * 200000)\nsys.stderr.write("\\x7f" * 200000)';
    const result = await client.callTool(python(code), TIMEOUT);
    must(result.structuredContent.truncated, 'not truncated');
  });
  await test('lists languages and history', async () => {
    const languages = await client.callTool({ name: 'list_supported_languages', arguments: {} }, TIMEOUT);
    equal(languages.structuredContent.result.map(l => l.language), ['python', 'cpp'], 'languages');
    const history = await client.callTool({ name: 'get_execution_history', arguments: { limit: 3 } }, TIMEOUT);
    equal(history.structuredContent.result.length, 3, 'rows');
    equal((await client.callTool({ name: 'get_execution_history' }, TIMEOUT)).isError ?? false, false, 'no arguments');
  });
  await test('sees bad arguments as results with isError, and an unknown tool as an error', async () => {
    for (const args of [{}, { language: 'cobol', code: 'x' }, { language: 'python', code: '' }, { language: 'python', code: '1', timeout_seconds: 99 }]) {
      const result = await client.callTool({ name: 'run_code', arguments: args }, TIMEOUT);
      must(result.isError === true && result.content[0].text.length > 10, JSON.stringify(args));
    }
    const refused = await client.callTool({ name: 'nonsense', arguments: {} }, TIMEOUT).then(() => null, e => e);
    must(refused && refused.code === -32602, `unknown tool: ${refused?.code}`);
  });
  await test('gets progress that grows, and none after the answer', async () => {
    const seen = [];
    await client.callTool(python('import time; time.sleep(2.6)'), { ...TIMEOUT, onprogress: p => seen.push(p) });
    must(seen.length >= 2, `${seen.length} notifications`);
    for (let i = 1; i < seen.length; i++) must(seen[i].progress > seen[i - 1].progress, 'progress shrank');
    const before = seen.length;
    await sleep(1200);
    equal(seen.length, before, 'notifications');
  });
  await test('cancels, and hears no more of it', async () => {
    const stopper = new AbortController();
    const running = client.callTool(python('import time; time.sleep(20)', 25), { ...TIMEOUT, signal: stopper.signal, onprogress: () => {} });
    const outcome = running.then(() => 'finished', () => 'rejected');
    await sleep(700);
    stopper.abort('as a test');
    equal(await outcome, 'rejected', 'the call');
    await client.ping(TIMEOUT);
    await sleep(100);
    const count = record.messages.length;
    await sleep(1500);
    equal(record.messages.length, count, 'messages');
    const { structuredContent } = await client.callTool({ name: 'get_execution_history', arguments: { limit: 1 } }, TIMEOUT);
    equal(structuredContent.result[0].status, 'cancelled', 'history');
  });
  await test('runs many at once', async () => {
    const results = await Promise.all([...Array(12).keys()].map(i => client.callTool(python(`print(${i})`), TIMEOUT)));
    results.forEach((result, i) => equal(result.structuredContent.stdout, `${i}\n`, 'stdout'));
  });
  await test('had nothing to complain about', async () => {
    // Progress read in one chunk with its answer is reported, though the order on the wire was right.
    equal(record.errors.filter(text => !/abort|cancel|progress/i.test(text)), [], 'errors');
  });
  await test('closes: status 0, during a run, too', async () => {
    client.callTool(python('import time; time.sleep(20)', 25), TIMEOUT).catch(() => {});
    await sleep(500);
    await stop(session);
  });
}

async function otherEras(sdk) {
  await test('connects when the client probes for newer eras first', async () => {
    const session = await start(sdk, { versionNegotiation: { mode: 'auto', probe: { timeoutMs: 5000 } } });
    const result = await session.client.callTool(python('print("probed")'), TIMEOUT);
    equal(result.structuredContent.stdout, 'probed\n', 'stdout');
    await stop(session);
  });
  await test('connects and closes at once, ten times', async () => {
    for (let i = 0; i < 10; i++) await stop(await start(sdk));
  });
}

let sdk;
await test('finds the client library', async () => {
  const main = await load('@modelcontextprotocol/client');
  const stdio = await load('@modelcontextprotocol/client/stdio');
  sdk = { Client: main.Client, Stdio: stdio.StdioClientTransport };
});
if (sdk) {
  await legacyEra(sdk);
  await otherEras(sdk);
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
