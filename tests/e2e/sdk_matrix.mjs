// What every official client must get over every transport and in every era: a client for each
// combination goes through the same tests.

import { setTimeout as sleep } from 'node:timers/promises';
import { equal, must, test } from '../conformance/report.mjs';
import { SLOW } from '../conformance/server.mjs';
import { TIMEOUT, close, history, open, python } from './sdk_kit.mjs';

// Values for the required arguments of a prompt, as a user who completes them gets them.
async function values(client, prompt) {
  const wanted = {};
  for (const { name, required } of prompt.arguments ?? []) {
    if (!required) continue;
    const ref = { type: 'ref/prompt', name: prompt.name };
    const { completion } = await client.complete({ ref, argument: { name, value: '' } }, TIMEOUT);
    wanted[name] = completion.values[0] ?? 'python';
  }
  return wanted;
}

async function checkResources({ client }) {
  const { resources } = await client.listResources({}, TIMEOUT);
  for (const { uri, name, description } of resources) {
    must(name && description, `${uri} has no name or no description`);
    const { contents } = await client.readResource({ uri }, TIMEOUT);
    must(contents.length > 0 && contents.every(part => part.uri), `contents of ${uri}`);
  }
  const { resourceTemplates } = await client.listResourceTemplates({}, TIMEOUT);
  must(resources.length + resourceTemplates.length > 0, 'no resource at all');
  const refused = await client.readResource({ uri: 'nothing://at-all' }, TIMEOUT).then(() => null, e => e);
  must([-32602, -32002].includes(refused?.code), `an unknown resource: ${refused?.code}`);
}

async function checkPrompts({ client }) {
  const { prompts } = await client.listPrompts({}, TIMEOUT);
  must(prompts.length > 0, 'no prompt');
  for (const prompt of prompts) {
    must(prompt.description, `${prompt.name} has no description`);
    const request = { name: prompt.name, arguments: await values(client, prompt) };
    const { messages } = await client.getPrompt(request, TIMEOUT);
    must(messages.length > 0, `messages of ${prompt.name}`);
  }
  const refused = await client.getPrompt({ name: 'nonsense' }, TIMEOUT).then(() => null, e => e);
  equal(refused?.code, -32602, 'an unknown prompt');
}

// Arguments of prompts and variables of templates, whatever there are, can be completed; a template with
// what was found in it can be read.
async function checkCompletion({ client }) {
  const refs = [];
  for (const { name, arguments: wanted } of (await client.listPrompts({}, TIMEOUT)).prompts) {
    for (const argument of wanted ?? []) refs.push([{ type: 'ref/prompt', name }, argument.name]);
  }
  for (const { uriTemplate } of (await client.listResourceTemplates({}, TIMEOUT)).resourceTemplates) {
    const ref = { type: 'ref/resource', uri: uriTemplate };
    for (const [, name] of uriTemplate.matchAll(/{(\w+)}/g)) refs.push([ref, name]);
  }
  let found = 0;
  for (const [ref, name] of refs) {
    const { completion } = await client.complete({ ref, argument: { name, value: '' } }, TIMEOUT);
    must(Array.isArray(completion.values), `${JSON.stringify(ref)} ${name}`);
    found += completion.values.length;
    if (!ref.uri || !completion.values.length) continue;
    const uri = ref.uri.replace(`{${name}}`, encodeURIComponent(completion.values[0]));
    must((await client.readResource({ uri }, TIMEOUT)).contents[0].uri === uri, `contents of ${uri}`);
  }
  must(found > 0, 'nothing to complete');
}

async function checkProgress({ call }) {
  const seen = [];
  const result = await call(python('import time; time.sleep(1.6)'), { onprogress: p => seen.push(p.progress) });
  equal(result.structuredContent.status, 'success', 'status');
  must(seen.length >= 1, 'no progress');
  must(seen.every((value, i) => i === 0 || value > seen[i - 1]), `progress: ${seen}`);
}

async function checkCancel({ call }, name) {
  const stopper = new AbortController();
  const code = `import time; time.sleep(20) # ${name}`;
  const stop = ({ message }) => void (/^running/i.test(message) && stopper.abort('as a test'));
  const running = call(python(code, 25), { signal: stopper.signal, onprogress: stop });
  equal(await running.then(() => 'finished', () => 'rejected'), 'rejected', 'the call');
  for (let i = 0; i < 50 * SLOW; i++) {
    const rows = (await call(history(50))).structuredContent.result;
    const found = rows.find(row => row.code_snippet.includes(name));
    if (found) return equal(found.status, 'cancelled', 'history');
    await sleep(100);
  }
  must(false, 'the run went on');
}

// Over legacy SSE and HTTP a disconnect ends nothing, so the session's end is tested by its own specs.
async function battery(name, session) {
  const { client, call } = session;
  await test(`${name}: lists tools and runs code`, async () => {
    const { tools } = await client.listTools({}, TIMEOUT);
    must(tools.some(tool => tool.name === 'run_code'), 'no run_code');
    const result = await call(python('print(6 * 7)'));
    equal(result.structuredContent.stdout, '42\n', 'stdout');
    const failed = await call(python('raise SystemExit(3)')); // for the prompt about failed runs
    equal(failed.structuredContent.exit_code, 3, 'exit code');
  });
  await test(`${name}: resources`, () => checkResources(session));
  await test(`${name}: prompts`, () => checkPrompts(session));
  await test(`${name}: completion`, () => checkCompletion(session));
  await test(`${name}: progress`, () => checkProgress(session));
  await test(`${name}: cancel`, () => checkCancel(session, name));
}

// One combination from connection to end. version: what must have been negotiated.
export async function combination(name, sdk, options, version) {
  let session;
  await test(`${name}: connects`, async () => {
    session = await open(sdk, options);
    equal(session.client.getServerVersion()?.name, 'sandbox-runner', 'name');
    if (sdk.generation === 2) equal(session.client.getNegotiatedProtocolVersion(), version, 'version');
  });
  if (!session) return;
  await battery(name, session);
  await test(`${name}: closes`, async () => {
    equal(session.record.errors.filter(text => !/abort|cancel|progress/i.test(text)), [], 'errors');
    await close(session);
  });
}
