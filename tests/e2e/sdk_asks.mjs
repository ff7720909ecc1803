// Requests of the server to the client, subscriptions, and parameters in headers, with the tools that
// the conformance tests use: each client answers by its own means.

import { setTimeout as sleep } from 'node:timers/promises';
import { equal, must, test } from '../conformance/report.mjs';
import { FIXTURES, SLOW } from '../conformance/server.mjs';
import { TIMEOUT, close, open } from './sdk_kit.mjs';

const CAPABILITIES = { elicitation: {}, sampling: {}, roots: {} };
const ANSWERS = {
  'elicitation/create': { action: 'accept', content: { username: 'Ann', email: 'ann@example.com', name: 'Ann' } },
  'sampling/createMessage': { role: 'assistant', model: 'm', content: { type: 'text', text: 'Paris' } },
  'roots/list': { roots: [{ uri: 'file:///home/ann', name: 'home' }] }
};
// The names of v1's schemas for the same.
const SCHEMAS = { 'elicitation/create': 'ElicitRequestSchema', 'sampling/createMessage': 'CreateMessageRequestSchema',
  'roots/list': 'ListRootsRequestSchema' };
const CALLS = {
  test_elicitation: [{ message: 'Who?' }, /accept.*Ann/],
  test_sampling: [{ prompt: 'Capital?' }, /Paris/],
  test_input_required_result_list_roots: [{}, /home.ann/],
  test_input_required_result_multiple_inputs: [{}, /Paris/]
};

function answerAll(sdk) {
  return client => {
    for (const [method, answer] of Object.entries(ANSWERS)) {
      client.setRequestHandler(sdk.generation === 1 ? sdk.schemas[SCHEMAS[method]] : method, async () => answer);
    }
  };
}

async function asks(name, session) {
  for (const [tool, [args, wanted]] of Object.entries(CALLS)) {
    await test(`${name}: answers ${tool}`, async () => {
      const { content, isError } = await session.call({ name: tool, arguments: args });
      must(!isError && wanted.test(content[0].text), JSON.stringify(content));
    });
  }
  await test(`${name}: calls a tool with a parameter in a header`, async () => {
    await session.client.listTools({}, TIMEOUT); // whence the client knows of the header
    const { content } = await session.call({ name: 'test_x_mcp_header', arguments: { region: 'Köln\n' } });
    equal(content[0].text, 'Region: Köln\n', 'text');
  });
}

// Counts notifications of a method, by the means of either generation.
function counter({ sdk, client }, method, schema) {
  const heard = { count: 0 };
  client.setNotificationHandler(sdk.generation === 1 ? sdk.schemas[schema] : method, () => void heard.count++);
  return heard;
}

async function hears(heard, what) {
  for (let i = 0; i < 60 * SLOW && heard.count < 1; i++) await sleep(50);
  await sleep(100);
  equal(heard.count, 1, what);
}

async function listens(name, session, era) {
  const { client, call } = session;
  const lists = counter(session, 'notifications/tools/list_changed', 'ToolListChangedNotificationSchema');
  const updates = counter(session, 'notifications/resources/updated', 'ResourceUpdatedNotificationSchema');
  let subscription;
  await test(`${name}: hears of changes that it subscribed to, once each`, async () => {
    const uri = 'test://watched-resource';
    const wanted = { toolsListChanged: true, resourceSubscriptions: [uri] };
    if (era === 'modern') subscription = await client.listen(wanted, TIMEOUT);
    else await client.subscribeResource({ uri }, TIMEOUT);
    await call({ name: 'test_trigger_tool_change', arguments: {} });
    await call({ name: 'touch_watched_resource', arguments: {} });
    await hears(lists, 'notifications of the list');
    await hears(updates, 'notifications of the resource');
  });
  await test(`${name}: ... and of no more when it has ended that`, async () => {
    if (era === 'modern') await subscription.close();
    else await client.unsubscribeResource({ uri: 'test://watched-resource' }, TIMEOUT);
    updates.count = 0;
    await call({ name: 'touch_watched_resource', arguments: {} });
    await sleep(300);
    equal(updates.count, 0, 'notifications');
  });
}

// A client of one era over stdio or, with url, over HTTP.
export async function fixtures(name, sdk, era, url) {
  let session;
  await test(`${name}: connects`, async () => {
    session = await open(sdk, { era, url, args: ['--config', FIXTURES], capabilities: CAPABILITIES,
      prepare: answerAll(sdk) });
  });
  if (!session) return;
  await asks(name, session);
  await listens(name, session, era);
  await test(`${name}: closes`, () => close(session));
}
