// Starts the server under test over HTTP, and says how it ended.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

export const PROGRAM = process.env.SR_PROGRAM ?? path.join(ROOT, 'build/sandbox-runner');
export const PACKAGES = path.resolve(process.env.MCP_SDK_DIR ?? path.join(ROOT, 'build/node'));
export const FIXTURES = path.join(ROOT, 'tests/conformance/init.lua');
// Everything takes longer under the sanitizers.
export const SLOW = process.env.SR_FLAVOUR === 'asan' ? 4 : 1;

// A folder for a server's state and the environment that makes it use that.
export function place() {
  const state = mkdtempSync(path.join(tmpdir(), 'sandbox-runner-test-'));
  const env = { PATH: process.env.PATH, HOME: state, XDG_STATE_HOME: state };
  for (const name of ['DOCKER_HOST', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'LSAN_OPTIONS']) {
    if (process.env[name]) env[name] = process.env[name];
  }
  return { env, remove: () => rmSync(state, { recursive: true, force: true }) };
}

class HttpServer {
  constructor(args) {
    this.place = place();
    this.log = '';
    this.child = spawn(PROGRAM, [...args, '--transport', 'http', '--port', '0'],
      { env: this.place.env, stdio: ['ignore', 'ignore', 'pipe'] });
    this.ended = new Promise(resolve => this.child.once('exit', (code, signal) => resolve({ code, signal })));
  }

  address() {
    return new Promise((resolve, reject) => {
      this.child.stderr.setEncoding('utf8').on('data', chunk => {
        this.log += chunk;
        const found = this.log.match(/listening on (http:\/\/\S+)/);
        if (found) resolve(found[1]);
      });
      this.child.once('error', reject);
      this.ended.then(end => reject(new Error(`the server ended (${JSON.stringify(end)}): ${this.log}`)));
    });
  }

  // SIGTERM. Resolves to { code, signal, ms, log }.
  async stop() {
    const asked = performance.now();
    this.child.kill('SIGTERM');
    const killer = setTimeout(() => this.child.kill('SIGKILL'), 10000 * SLOW);
    const end = await this.ended;
    clearTimeout(killer);
    this.place.remove();
    return { ...end, ms: Math.round(performance.now() - asked), log: this.log };
  }
}

// Resolves to { url, stop() } when the server listens.
export async function startHttp(args = []) {
  const server = new HttpServer(args);
  try {
    return { url: await server.address(), stop: () => server.stop(), log: () => server.log };
  } catch (e) {
    server.place.remove();
    throw e;
  }
}
