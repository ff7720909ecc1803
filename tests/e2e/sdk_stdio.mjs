// The server over stdio with its own settings, in depth, as the newest official client sees it.

import { setTimeout as sleep } from 'node:timers/promises';
import { equal, must, test } from '../conformance/report.mjs';
import { TIMEOUT, close, history, open, python } from './sdk_kit.mjs';

const BAD_ARGUMENTS = [{}, { language: 'cobol', code: 'x' }, { language: 'python', code: '' },
  { language: 'python', code: '1', timeout_seconds: 99 }];

async function lists({ client }) {
  await test('lists its tools, with schemas that the client compiles', async () => {
    const { tools, nextCursor } = await client.listTools({}, TIMEOUT);
    equal(tools.map(t => t.name), ['run_code', 'list_supported_languages', 'get_execution_history'], 'names');
    must(nextCursor === undefined, 'a second page');
    for (const tool of tools) must(tool.inputSchema && tool.outputSchema && tool.annotations, tool.name);
  });
  await test('pings', async () => {
    await client.ping(TIMEOUT);
  });
}

async function runs({ call }) {
  await test('runs Python', async () => {
    const result = await call(python('print(6 * 7)'));
    must(!result.isError, 'isError');
    equal(result.structuredContent.stdout, '42\n', 'stdout');
    equal(JSON.parse(result.content[0].text), result.structuredContent, 'the text part');
  });
  await test('runs C++', async () => {
    const code = '#include <iostream>\nint main() { std::cout << "hi"; return 3; }';
    const result = await call({ name: 'run_code', arguments: { language: 'cpp', code } });
    equal([result.structuredContent.stdout, result.structuredContent.exit_code], ['hi', 3], 'result');
  });
  await test('takes results of every kind as valid', async () => {
    const wanted = { 'raise SystemExit(2)': 'error', 'import time; time.sleep(9)': 'timeout',
      'import os; os.abort()': 'error' };
    for (const [code, status] of Object.entries(wanted)) {
      const result = await call(python(code, 1));
      equal(result.structuredContent.status, status, code);
    }
    const broken = await call({ name: 'run_code', arguments: { language: 'cpp', code: 'int main() {' } });
    equal(broken.structuredContent.status, 'compile_error', 'broken C++');
  });
  await test('takes bytes of every value', async () => {
    const code = 'import os\nos.write(1, bytes(range(256)) * 3)\n' +
      'os.write(2, "\\u2028\\u2029".encode() + b"\\xed\\xa0\\x80")';
    const result = await call(python(code));
    equal(result.structuredContent.stdout_bytes, 768, 'bytes');
    must(result.structuredContent.stdout.startsWith('\0\x01\x02'), 'the first characters');
  });
  await test('takes the largest outputs', async () => {
    const code = 'import sys\nsys.stdout.write("\\x01" * 200000)\nsys.stderr.write("\\x7f" * 200000)';
    const result = await call(python(code));
    must(result.structuredContent.truncated, 'not truncated');
  });
}

async function others({ call }) {
  await test('lists languages and history', async () => {
    const languages = await call({ name: 'list_supported_languages', arguments: {} });
    equal(languages.structuredContent.result.map(l => l.language), ['python', 'cpp'], 'languages');
    equal((await call(history(3))).structuredContent.result.length, 3, 'rows');
    equal((await call({ name: 'get_execution_history' })).isError ?? false, false, 'no arguments');
  });
  await test('sees bad arguments as results with isError, and an unknown tool as an error', async () => {
    for (const args of BAD_ARGUMENTS) {
      const result = await call({ name: 'run_code', arguments: args });
      must(result.isError === true && result.content[0].text.length > 10, JSON.stringify(args));
    }
    const refused = await call({ name: 'nonsense', arguments: {} }).then(() => null, e => e);
    must(refused && refused.code === -32602, `unknown tool: ${refused?.code}`);
  });
}

async function notes({ client, record, call }) {
  await test('gets progress that grows, and none after the answer', async () => {
    const seen = [];
    await call(python('import time; time.sleep(2.6)'), { onprogress: p => seen.push(p) });
    must(seen.length >= 2, `${seen.length} notifications`);
    for (let i = 1; i < seen.length; i++) must(seen[i].progress > seen[i - 1].progress, 'progress shrank');
    const before = seen.length;
    await sleep(1200);
    equal(seen.length, before, 'notifications');
  });
  await test('cancels, and hears no more of it', async () => {
    const stopper = new AbortController();
    const running = call(python('import time; time.sleep(20)', 25), { signal: stopper.signal, onprogress: () => {} });
    const outcome = running.then(() => 'finished', () => 'rejected');
    await sleep(700);
    stopper.abort('as a test');
    equal(await outcome, 'rejected', 'the call');
    await client.ping(TIMEOUT);
    await sleep(100);
    const count = record.messages.length;
    await sleep(1500);
    equal(record.messages.length, count, 'messages');
    equal((await call(history(1))).structuredContent.result[0].status, 'cancelled', 'history');
  });
  await test('runs many at once', async () => {
    const results = await Promise.all([...Array(12).keys()].map(i => call(python(`print(${i})`))));
    results.forEach((result, i) => equal(result.structuredContent.stdout, `${i}\n`, 'stdout'));
  });
  await test('had nothing to complain about', async () => {
    // Progress read in one chunk with its answer is reported, though the order on the wire was right.
    equal(record.errors.filter(text => !/abort|cancel|progress/i.test(text)), [], 'errors');
  });
}

export async function stdioInDepth(sdk) {
  let session;
  await test('connects', async () => {
    session = await open(sdk);
    equal(session.client.getNegotiatedProtocolVersion(), '2025-11-25', 'version');
    equal(session.client.getServerVersion().name, 'sandbox-runner', 'name');
    must(session.client.getServerCapabilities().tools, 'no tools capability');
  });
  if (!session) return;
  for (const part of [lists, runs, others, notes]) await part(session);
  await test('closes: status 0, during a run, too', async () => {
    session.call(python('import time; time.sleep(20)', 25)).catch(() => {});
    await sleep(500);
    await close(session);
  });
  await test('connects and closes at once, ten times', async () => {
    for (let i = 0; i < 10; i++) await close(await open(sdk));
  });
}
