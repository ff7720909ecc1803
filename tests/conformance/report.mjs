// Counts tests and prints them the way tests/run.sh reads: "ok NAME", "FAILED NAME: MESSAGE", and a
// last line "N passed, N failed".

let passed = 0;
let failed = 0;

export function ok(name) {
  passed++;
  console.log(`ok     ${name}`);
}

export function wrong(name, message) {
  failed++;
  const [first, ...more] = String(message).split('\n');
  console.log(`FAILED ${name}: ${first}`);
  for (const line of more.slice(0, 4)) console.log(`       ${line.trim()}`);
}

// What a test found wrong; of any other error the stack is of interest, too.
export class Failure extends Error {}

// Runs a test; what it throws is its failure.
export async function test(name, body) {
  try {
    await body();
    ok(name);
  } catch (e) {
    wrong(name, e instanceof Failure ? e.message : (e?.stack ?? e));
  }
}

export function must(condition, what) {
  if (!condition) throw new Failure(what);
}

export function equal(got, wanted, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
  must(a === b, `${what}: ${a}, wanted ${b}`);
}

// Prints the last line; returns the exit status.
export function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  return failed ? 1 : 0;
}
