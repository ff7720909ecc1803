// Streamable HTTP in front of a stdio server, for clients that speak HTTP only.
//
//   node bridge.mjs --port N -- COMMAND [ARGUMENT...]
//
// Requests with the envelope of revision 2026-07-28 share one process; each session with a handshake
// has a process of its own. What is a matter of HTTP alone (sessions, headers, Host and Origin,
// statuses) the bridge answers itself: it proves nothing about the server.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const ENVELOPE = 'io.modelcontextprotocol/protocolVersion';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const MODERN = '2026-07-28';
const NAMED = {
  'tools/call': 'name', 'prompts/get': 'name', 'resources/read': 'uri',
  'tasks/get': 'taskId', 'tasks/update': 'taskId', 'tasks/cancel': 'taskId'
};
const STATUS = { '-32601': 404, '-32020': 400, '-32021': 400, '-32022': 400 };
const LOCAL = /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/;

// One process of the server and the requests that it has not answered. deliver(entry, message): what
// becomes of a message; entry is undefined when it belongs to no request.
class Peer {
  constructor(options, deliver) {
    this.child = spawn(options.command, options.args, { env: options.env, stdio: ['pipe', 'pipe', 'inherit'] });
    this.ended = new Promise(resolve => this.child.once('exit', (code, signal) => resolve({ code, signal })));
    this.child.stdin.on('error', () => {});
    this.deliver = deliver;
    this.open = new Map(); // id on the wire -> entry
    this.tokens = new Map(); // progress token on the wire -> entry
    this.fresh = 1e6;
    this.odd = [];
    this.read();
  }

  read() {
    let pending = '';
    this.child.stdout.setEncoding('utf8').on('data', chunk => {
      const lines = (pending + chunk).split('\n');
      pending = lines.pop();
      for (const line of lines) {
        try {
          this.take(JSON.parse(line));
        } catch (e) {
          this.odd.push(`${e.message}: ${line.slice(0, 200)}`);
        }
      }
    });
  }

  write(message) {
    this.child.stdin.write(JSON.stringify(message) + '\n');
  }

  // Ids and tokens of different clients may be the same; the later one gets another.
  request(message, entry) {
    const token = message.params?._meta?.progressToken;
    entry.id = message.id;
    entry.wire = this.open.has(message.id) ? this.fresh++ : message.id;
    message = { ...message, id: entry.wire };
    if (token !== undefined) {
      entry.token = token;
      entry.wireToken = this.tokens.has(token) ? this.fresh++ : token;
      message.params = { ...message.params, _meta: { ...message.params._meta, progressToken: entry.wireToken } };
      this.tokens.set(entry.wireToken, entry);
    }
    this.open.set(entry.wire, entry);
    this.write(message);
  }

  forget(entry) {
    this.open.delete(entry.wire);
    this.tokens.delete(entry.wireToken);
  }

  take(message) {
    if (message.method === undefined) {
      const entry = this.open.get(message.id);
      if (!entry) throw new Error('an answer to nothing');
      this.forget(entry);
      return this.deliver(entry, this.relabel(entry, { ...message, id: entry.id }));
    }
    const meta = message.params?._meta?.[SUBSCRIPTION];
    let entry = this.open.get(meta) ?? this.tokens.get(message.params?.progressToken);
    if (!entry && meta === undefined) entry = [...this.open.values()].at(-1);
    return this.deliver(entry, entry ? this.relabel(entry, message) : message);
  }

  // A message with the client's own id and token in it.
  relabel(entry, message) {
    const part = message.result ? 'result' : 'params';
    const value = message[part];
    if (!value) return message;
    const changed = { ...value };
    if (value.progressToken !== undefined) changed.progressToken = entry.token;
    if (value._meta?.[SUBSCRIPTION] !== undefined) changed._meta = { ...value._meta, [SUBSCRIPTION]: entry.id };
    return { ...message, [part]: changed };
  }

  async close() {
    this.child.stdin.end();
    return this.ended;
  }
}

function event(message) {
  return `event: message\ndata: ${JSON.stringify(message)}\n\n`;
}

// What precedes the answer makes it a stream; else it is one JSON object.
function deliver(entry, message) {
  if (!entry) return;
  const { response } = entry;
  const last = message.method === undefined;
  if (!response.headersSent && (!last || entry.streamed)) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache', ...entry.headers });
  }
  if (response.headersSent) {
    response.write(event(message));
    if (last) response.end();
    return;
  }
  send(response, entry.statusOf?.(message) ?? 200, message, entry.headers);
}

function send(response, status, body, headers = {}) {
  response.writeHead(status, { ...(body && { 'Content-Type': 'application/json' }), ...headers });
  response.end(body ? JSON.stringify(body) : undefined);
}

function fail(response, status, id, code, message) {
  send(response, status, { jsonrpc: '2.0', ...(id !== undefined && { id }), error: { code, message } });
}

// Why the headers of a modern request do not fit its body, or nothing.
function mismatch(headers, message) {
  const meta = message.params?._meta ?? {};
  const field = NAMED[message.method];
  if (meta[ENVELOPE] !== undefined && headers['mcp-protocol-version'] !== meta[ENVELOPE]) return 'MCP-Protocol-Version';
  if (headers['mcp-method'] !== message.method) return 'Mcp-Method';
  if (field && headers['mcp-name'] !== message.params?.[field]) return 'Mcp-Name';
}

function isModern(headers, message) {
  return message.params?._meta?.[ENVELOPE] !== undefined || headers['mcp-protocol-version'] >= MODERN;
}

class Bridge {
  constructor(options) {
    this.options = options;
    this.sessions = new Map();
    this.peers = new Set();
    this.server = http.createServer((request, response) => this.serve(request, response));
  }

  start() {
    const peer = new Peer(this.options, deliver);
    this.peers.add(peer);
    return peer;
  }

  async serve(request, response) {
    const { headers } = request;
    const origin = headers.origin?.replace(/^https?:\/\//, '') ?? 'localhost';
    if (!LOCAL.test(headers.host ?? '') || !LOCAL.test(origin)) {
      return fail(response, 403, undefined, -32600, 'not from here');
    }
    if (request.method === 'DELETE') return this.end(headers, response);
    if (request.method !== 'POST') return send(response, 405, undefined, { Allow: 'POST, DELETE' });
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return fail(response, 400, undefined, -32700, 'not JSON');
    }
    if (isModern(headers, message)) this.modern(headers, message, response);
    else this.legacy(headers, message, response);
  }

  modern(headers, message, response) {
    const wrong = mismatch(headers, message);
    if (wrong) return fail(response, 400, message.id, -32020, `the header ${wrong} differs from the body`);
    const meta = message.params?._meta;
    const complete = meta?.[ENVELOPE] !== undefined && meta[CAPABILITIES] !== undefined;
    const statusOf = ({ error }) => error && (STATUS[error.code] ?? (error.code === -32602 && !complete ? 400 : 200));
    this.shared ??= this.start();
    if (message.id === undefined) {
      this.shared.write(message);
      return send(response, 202);
    }
    const entry = { response, statusOf };
    this.shared.request(message, entry);
    response.once('close', () => {
      if (this.shared.open.get(entry.wire) !== entry) return;
      this.shared.write({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: entry.wire } });
      this.shared.forget(entry);
    });
  }

  legacy(headers, message, response) {
    const id = headers['mcp-session-id'];
    const opens = message.method === 'initialize' && id === undefined;
    const session = opens ? randomUUID() : id;
    if (opens) this.sessions.set(session, this.start());
    const peer = this.sessions.get(session);
    if (!peer) return fail(response, id === undefined ? 400 : 404, message.id, -32600, 'no such session');
    if (message.id === undefined || message.method === undefined) {
      peer.write(message);
      return send(response, 202);
    }
    peer.request(message, { response, streamed: !opens, headers: opens ? { 'MCP-Session-Id': session } : {} });
  }

  end(headers, response) {
    const session = headers['mcp-session-id'];
    const peer = this.sessions.get(session);
    if (!peer) return fail(response, 404, undefined, -32600, 'no such session');
    this.sessions.delete(session);
    peer.close();
    send(response, 204);
  }

  // Ends all processes. Resolves to what was wrong with them, a list of texts.
  async close() {
    this.server.closeAllConnections();
    this.server.close();
    const faults = [];
    for (const peer of this.peers) {
      const { code, signal } = await peer.close();
      if (code !== 0) faults.push(`a process ended with ${signal ?? code}`);
      faults.push(...peer.odd);
    }
    return faults;
  }
}

// Listens on 127.0.0.1 (port 0: a free one) in front of `command args...`. Resolves to { url, close }.
export async function bridge({ command, args = [], env = process.env, port = 0 }) {
  const made = new Bridge({ command, args, env });
  await new Promise((resolve, reject) => made.server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${made.server.address().port}/mcp`, close: () => made.close() };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const split = process.argv.indexOf('--');
  const command = split < 0 ? [] : process.argv.slice(split + 1);
  const port = Number(process.argv[process.argv.indexOf('--port') + 1]);
  if (!command.length || !Number.isInteger(port)) {
    console.error('usage: node bridge.mjs --port N -- COMMAND [ARGUMENT...]');
    process.exit(2);
  }
  const { url } = await bridge({ command: command[0], args: command.slice(1), port });
  console.error(`listening on ${url}`);
}
