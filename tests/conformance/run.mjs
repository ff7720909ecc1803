// The official conformance runner against this server, over HTTP and, by a bridge, over stdio; then
// the Inspector. MCP_SDK_DIR: a folder with node_modules; SR_PROGRAM: the server. With --url URL:
// only the runner, against a server that runs already. Last line "N passed, N failed".

import process from 'node:process';
import { bridge } from './bridge.mjs';
import { inspect } from './inspector.mjs';
import { equal, finish, must, test } from './report.mjs';
import { ABOUT_HTTP, BARS, REVISIONS, judge, passes, run } from './runner.mjs';
import { FIXTURES, PACKAGES, PROGRAM, SLOW, place, startHttp } from './server.mjs';

// Runs every revision against a server; to be judged later, so that several can run at a time.
function runAll(url) {
  return Promise.all(Object.keys(REVISIONS).map(async revision => [revision, await run(PACKAGES, url, revision)]));
}

// transport: "HTTP" or "stdio", a key of the bars.
async function judgeAll(transport, outcomes) {
  for (const [revision, { scenarios, output }] of outcomes) {
    const prefix = `${revision} over ${transport}`;
    const { required, unscored } = REVISIONS[revision];
    await test(`${prefix}: the runner runs every scenario`, () => {
      equal(scenarios.size, required + unscored.length, `scenarios, after: ${output.slice(-300)}`);
    });
    await judge(`${prefix}:`, scenarios, transport === 'stdio' ? ABOUT_HTTP : []);
    await measure(prefix, scenarios, BARS[transport][revision]);
  }
}

// A scenario that finds nothing to check passes: so the checks that passed are counted, too.
async function measure(prefix, scenarios, bars) {
  for (const [what, belongs, bar] of bars) {
    await test(`${prefix}: ${what} checks, at least ${bar}`, () => {
      let sum = 0;
      for (const [name, checks] of scenarios) sum += belongs(name) ? passes(checks) : 0;
      must(sum >= bar, `${sum} passed`);
    });
  }
}

async function overHttp() {
  let server;
  await test('starts over HTTP', async () => {
    server = await startHttp(['--config', FIXTURES]);
  });
  if (!server) return;
  await judgeAll('HTTP', await runAll(server.url));
  await test('stops after it all, with status 0 and no fault in its log', async () => {
    const end = await server.stop();
    equal([end.code, end.signal], [0, null], `its end, after: ${end.log.slice(-500)}`);
    must(end.ms < 2000 * SLOW, `it took ${end.ms} ms`);
    must(!/internal error|Sanitizer/.test(end.log), `its log: ${end.log.slice(-2000)}`);
  });
}

async function overStdio() {
  const { env, remove } = place();
  const front = await bridge({ command: PROGRAM, args: ['--config', FIXTURES], env });
  await judgeAll('stdio', await runAll(front.url));
  await test('every process over stdio ended with status 0 and wrote messages only', async () => {
    equal(await front.close(), [], 'faults');
  });
  remove();
}

const given = process.argv.indexOf('--url');
if (given > 0) {
  await judgeAll('HTTP', await runAll(process.argv[given + 1]));
} else {
  await Promise.all([overHttp(), overStdio()]);
  await inspect();
}
process.exit(finish());
