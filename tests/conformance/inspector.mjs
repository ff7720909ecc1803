// The Inspector's command line (@modelcontextprotocol/inspector) against this server with its own
// settings, over every transport: lists, whose schemas must be portable, and a run.

import { spawn } from 'node:child_process';
import path from 'node:path';
import process from 'node:process';
import { equal, must, test } from './report.mjs';
import { PACKAGES, PROGRAM, SLOW, place, startHttp } from './server.mjs';

const CLI = path.join(PACKAGES, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
const PYTHON = '{"language":"python","code":"print(6 * 7)"}';
const CALLS = [
  ['tools/list', '--strict'],
  ['tools/list', '--strict', '--protocol-era', 'auto'],
  ['resources/list'],
  ['prompts/list'],
  ['tools/call', '--tool-name', 'run_code', '--tool-args-json', PYTHON],
  ['tools/call', '--tool-name', 'run_code', '--tool-args-json', PYTHON, '--protocol-era', 'modern']
];

// Runs one command. Resolves to { code, stdout, stderr }. The home folder is a new one: the Inspector
// keeps files there.
function call(args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [CLI, '--cli', '--format', 'json', '--connect-timeout', '60000', ...args],
      { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120000 * SLOW });
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].on('data', chunk => (output[name] += chunk));
    child.once('error', reject);
    child.once('close', code => resolve({ code, ...output }));
  });
}

function judge(method, { code, stdout, stderr }) {
  equal(code, 0, `status, after: ${stderr.slice(-500)}`);
  const { result } = JSON.parse(stdout.trim().split('\n').at(-1));
  if (method === 'tools/call') return equal(result.structuredContent.stdout, '42\n', 'stdout');
  must(Array.isArray(result[method.split('/')[0]]), `no list in ${stdout.slice(0, 200)}`);
  must(!/schema|portab/i.test(stderr), `it has something to say: ${stderr.slice(0, 500)}`);
}

// modern: whether this transport has the newest era, too.
async function inspectBy(name, target, modern = true) {
  const { env, remove } = place();
  const passOn = Object.entries(env).filter(([key]) => /^(DOCKER_HOST|XDG_|.*SAN_OPTIONS)/.test(key));
  const words = passOn.flatMap(([key, value]) => ['-e', `${key}=${value}`]);
  await Promise.all(CALLS.filter(call => modern || !call.includes('modern')).map(([method, ...options]) =>
    test(`Inspector over ${name}: ${[method, ...options].filter(word => word !== PYTHON).join(' ')}`, async () => {
      judge(method, await call([...words, '--method', method, ...options, ...target], env));
    })));
  remove();
}

export async function inspect() {
  await inspectBy('stdio', ['--', PROGRAM]);
  let server;
  await test('Inspector: the server starts over HTTP', async () => {
    server = await startHttp();
  });
  if (!server) return;
  await inspectBy('HTTP', ['--server-url', server.url]);
  await inspectBy('SSE', ['--server-url', server.url.replace(/\/mcp$/, '/sse')], false);
  await test('Inspector: the server ends with status 0', async () => {
    const { code, signal, log } = await server.stop();
    equal([code, signal], [0, null], `its end, after: ${log.slice(-500)}`);
  });
}
