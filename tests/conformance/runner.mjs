// The official conformance runner (@modelcontextprotocol/conformance) as a function, and what its
// checks must say.

import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { Failure, must, test } from './report.mjs';

// A revision's scenarios: how many its frozen list requires, and those the runner adds unscored.
const EXTRA = ['json-schema-2020-12'];
const LEGACY_HTTP = ['server-session-lifecycle', 'server-sse-polling'];
const MODERN_HTTP = ['http-header-validation', 'http-custom-header-server-validation'];
const TASKS = ['tasks-lifecycle', 'tasks-capability-negotiation', 'tasks-wire-fields', 'tasks-request-state-removal',
  'tasks-mrtr-input', 'tasks-request-headers', 'tasks-dispatch-and-envelope', 'tasks-status-notifications',
  'tasks-required-task-error', 'tasks-mrtr-composition'];

export const REVISIONS = {
  '2025-11-25': { required: 30, unscored: [...EXTRA, ...LEGACY_HTTP] },
  '2026-07-28': { required: 37, unscored: [...EXTRA, ...MODERN_HTTP, ...TASKS] }
};

// In front of a stdio server the bridge answers what these are about: nothing of it is the server's.
export const ABOUT_HTTP = ['dns-rebinding-protection', 'tasks-request-headers', ...LEGACY_HTTP, ...MODERN_HTTP];

const isScored = name => !REVISIONS['2026-07-28'].unscored.includes(name);
const isTask = name => TASKS.includes(name);
const isOurs = name => !ABOUT_HTTP.includes(name);

// How many checks must pass at least, by transport and revision: [which, predicate, number].
export const BARS = {
  HTTP: {
    '2025-11-25': [['all', () => true, 84]],
    '2026-07-28': [['scored', isScored, 120], ['tasks', isTask, 44],
      ['header and schema', name => [...EXTRA, ...MODERN_HTTP].includes(name), 32]]
  },
  stdio: {
    '2025-11-25': [['all', isOurs, 76]],
    '2026-07-28': [['scored', name => isOurs(name) && isScored(name), 118],
      ['tasks', name => isOurs(name) && isTask(name), 39]]
  }
};

// The runner skips this one whatever the server does.
const SKIPPED = 'tasks-status-notifications';

function readChecks(folder) {
  const found = new Map();
  for (const name of readdirSync(folder)) {
    const scenario = name.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
    const file = path.join(folder, name, 'checks.json'); // not there when the scenario itself broke
    found.set(scenario, existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : []);
  }
  return found;
}

// Runs all scenarios of a revision against a server. Resolves to { scenarios: name -> checks, output }.
export async function run(packages, url, revision) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandbox-runner-test-'));
  try {
    const program = path.join(packages, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
    const child = spawn(process.execPath, [program, 'server', '--url', url, '--requirements', revision, '-o', folder],
      { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => (output += chunk));
    await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
    return { scenarios: readChecks(folder), output };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function complaint({ id, status, errorMessage }) {
  return `${status} ${id}: ${errorMessage ?? 'no message'}`;
}

export function passes(checks) {
  return checks.filter(check => check.status === 'SUCCESS').length;
}

// A test for each scenario: neither a failure nor a warning nor a skip, and something that passes.
export async function judge(prefix, scenarios, left_out = []) {
  for (const [name, checks] of scenarios) {
    if (left_out.includes(name)) continue;
    await test(`${prefix} ${name}`, () => {
      const bad = checks.filter(check => ['FAILURE', 'WARNING'].includes(check.status) ||
        (check.status === 'SKIPPED' && name !== SKIPPED));
      if (bad.length) throw new Failure(bad.map(complaint).join('\n'));
      must(name === SKIPPED || passes(checks) > 0, 'nothing passed');
    });
  }
}
