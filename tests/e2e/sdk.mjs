// The server as the official MCP clients see it: both generations of the SDK, over every transport,
// in every era, with the real engine. MCP_SDK_DIR: a folder with node_modules; SR_PROGRAM: the
// server. The last line is "N passed, N failed"; status 1 when something failed.

import process from 'node:process';
import { equal, finish, must, test } from '../conformance/report.mjs';
import { FIXTURES, SLOW, startHttp } from '../conformance/server.mjs';
import { fixtures } from './sdk_asks.mjs';
import { loadSdks } from './sdk_kit.mjs';
import { combination } from './sdk_matrix.mjs';
import { stdioInDepth } from './sdk_stdio.mjs';
import { tasks } from './sdk_tasks.mjs';

const LEGACY = '2025-11-25';
const MODERN = '2026-07-28';

async function overStdio({ v1, v2 }) {
  await Promise.all([
    combination('v2 stdio auto', v2, { era: 'auto' }, MODERN),
    combination('v2 stdio modern', v2, { era: 'modern' }, MODERN),
    combination('v1 stdio', v1, {}, LEGACY)
  ]);
}

// Each server over HTTP serves all the clients at the same time.
async function withHttp(what, args, body) {
  let server;
  await test(`${what}: the server starts`, async () => {
    server = await startHttp(args);
  });
  if (!server) return;
  await body(server.url, server.url.replace(/\/mcp$/, '/sse'));
  await test(`${what}: the server ends with status 0`, async () => {
    const { code, signal, ms, log } = await server.stop();
    equal([code, signal], [0, null], `its end, after: ${log.slice(-500)}`);
    must(ms < 6000 * SLOW, `it took ${ms} ms`); // a busy engine takes its time to remove sandboxes
    must(!/internal error|Sanitizer/.test(log), `its log: ${log.slice(-2000)}`);
  });
}

function overHttp({ v1, v2 }) {
  return withHttp('HTTP', [], (url, sse) => Promise.all([
    combination('v2 HTTP legacy', v2, { url }, LEGACY),
    combination('v2 HTTP auto', v2, { url, era: 'auto' }, MODERN),
    combination('v2 HTTP modern', v2, { url, era: 'modern' }, MODERN),
    combination('v2 SSE', v2, { url: sse }, LEGACY),
    combination('v1 HTTP', v1, { url }, LEGACY),
    combination('v1 SSE', v1, { url: sse }, LEGACY)
  ]));
}

async function askingOverStdio({ v1, v2 }) {
  await Promise.all([
    fixtures('v1 stdio asks', v1, 'legacy'),
    fixtures('v2 stdio legacy asks', v2, 'legacy'),
    fixtures('v2 stdio modern asks', v2, 'modern')
  ]);
}

function askingOverHttp({ v1, v2 }) {
  return withHttp('asks over HTTP', ['--config', FIXTURES], async (url, sse) => {
    // In turn: what one of them changes, all hear of.
    await fixtures('v1 HTTP asks', v1, 'legacy', url);
    await fixtures('v1 SSE asks', v1, 'legacy', sse);
    await fixtures('v2 HTTP legacy asks', v2, 'legacy', url);
    await fixtures('v2 HTTP modern asks', v2, 'modern', url);
    await tasks(v2, url);
  });
}

let sdks;
await test('finds the client libraries', async () => {
  sdks = await loadSdks();
});
if (sdks) {
  await stdioInDepth(sdks.v2);
  await Promise.all([overStdio(sdks), askingOverStdio(sdks)]);
  await Promise.all([overHttp(sdks), askingOverHttp(sdks)]);
}
process.exit(finish());
