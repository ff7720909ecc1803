#!/usr/bin/env bash
# Tests of tests/run.sh and .ci/run: what they say of suites and steps that fail. In a folder of its
# own, with programs that print what cmocka, busted and make print. Last line "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

PASSED=0
FAILED=0
WORK=$(mktemp -d "${TMPDIR:-/tmp}/sandbox-runner-test-XXXXXX")
trap 'rm -rf "$WORK"' EXIT
unset CI

mkdir -p "$WORK/.ci" "$WORK/tests/c" "$WORK/build/tests" "$WORK/bin"
cp .ci/run "$WORK/.ci/run"
cp tests/run.sh "$WORK/tests/run.sh"
export SR_BUILD=$WORK/build SR_PROGRAM=$WORK/program

# A program that prints a text and ends with a status.
program() {
    printf '#!/bin/sh\ncat <<"END"\n%s\nEND\nexit %s\n' "$3" "$2" >"$1"
    chmod 755 "$1"
}

# expect NAME OUTPUT LINE...: the output ends with these lines.
expect() {
    local name=$1 output=$2 wanted
    shift 2
    wanted=$(printf '%s\n' "$@")
    if [ "$(tail -n $# <<<"$output")" = "$wanted" ]; then
        PASSED=$((PASSED + 1))
    else
        FAILED=$((FAILED + 1))
        printf 'FAILED %s: got %s\n' "$name" "$(tail -n $(($# + 1)) <<<"$output" | tr '\n' '|')"
    fi
}

suites() { bash "$WORK/tests/run.sh" "$@" 2>&1; }

test_cmocka() {
    touch "$WORK/tests/c/test_one.c" "$WORK/tests/c/test_two.c"
    program "$WORK/build/tests/test_one" 2 '[==========] Running 4 test(s).
[ RUN      ] test_a
[  ERROR   ] --- 0x1 != 0x2
[   LINE   ] --- tests/c/test_one.c:7: error: Failure!
[  FAILED  ] test_a
[ RUN      ] test_b
[       OK ] test_b
[ RUN      ] test_c
Could not run test: Test teardown failed
[  ERROR   ] test_c
[ RUN      ] test_d
[       OK ] test_d
[==========] 4 test(s) run.
[  PASSED  ] 2 test(s).
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] test_a

 2 FAILED TEST(S)'
    program "$WORK/build/tests/test_two" 134 '[==========] Running 3 test(s).
[ RUN      ] test_e
[       OK ] test_e
[ RUN      ] test_f'
    expect 'cmocka: names, messages, places' "$(suites c)" \
        'FAILED: c: test_one: test_a: 0x1 != 0x2 (tests/c/test_one.c:7)' \
        'FAILED: c: test_one: test_c: Could not run test: Test teardown failed' \
        'FAILED: c: test_two: ended with status 134: test_f: did not end' \
        '3 passed, 3 failed'
    program "$WORK/build/tests/test_one" 0 '[==========] Running 1 test(s).
[ RUN      ] test_a
x.c:3:9: runtime error: signed integer overflow
[       OK ] test_a
[==========] 1 test(s) run.
[  PASSED  ] 1 test(s).'
    rm "$WORK/tests/c/test_two.c"
    expect 'cmocka: a sanitizer' "$(suites c)" \
        'FAILED: c: test_one: x.c:3:9: runtime error: signed integer overflow' '1 passed, 1 failed'
}

test_busted() {
    program "$SR_PROGRAM" 1 '+-*.+
2 successes / 1 failure / 2 errors / 1 pending : 0.01314 seconds

Pending -> tests/spec/a_spec.lua @ 6
outer pending one
tests/spec/a_spec.lua:6: why

Failure -> tests/spec/a_spec.lua @ 2
outer fails
tests/spec/a_spec.lua:2: Expected objects to be equal.
Passed in:
(number) 2

Error → tests/spec/a_spec.lua @ 3
outer errors
tests/spec/a_spec.lua:3: attempt to index a nil value

Error -> tests/spec/b_spec.lua:2: unexpected symbol near <eof>
tests/spec/b_spec.lua'
    expect 'busted: names and messages' "$(suites spec)" \
        'FAILED: spec: outer fails: tests/spec/a_spec.lua:2: Expected objects to be equal. Passed in: (number) 2' \
        'FAILED: spec: outer errors: tests/spec/a_spec.lua:3: attempt to index a nil value' \
        'FAILED: spec: tests/spec/b_spec.lua:2: unexpected symbol near <eof>' \
        '2 passed, 3 failed, 1 skipped'
    expect 'busted: a skip in CI' "$(CI=true suites spec)" \
        'FAILED: skipped: outer pending one (why)' '2 passed, 4 failed'
    program "$SR_PROGRAM" 124 ''
    expect 'busted: nothing at all' "$(suites spec e2e)" 'FAILED: spec: ended with status 124 (time is up)' \
        'FAILED: e2e: ended with status 124 (time is up)' '0 passed, 2 failed'
    program "$SR_PROGRAM" 0 '0 successes / 0 failures / 0 errors / 0 pending : 0.1 seconds'
    expect 'busted: no test' "$(suites spec)" 'FAILED: spec: ran no test' '0 passed, 1 failed'
}

test_counting() {
    printf '%s\n' 'echo "FAILED a script: status 1, wanted 0"' 'echo "and more of its output"' \
        'echo "3 passed, 1 failed"' 'exit 1' >"$WORK/tests/setup_test.sh"
    expect 'a counting suite' "$(suites setup)" \
        'FAILED: setup: a script: status 1, wanted 0' '3 passed, 1 failed'
    echo "echo '3 passed, 1 failed'; exit 1" >"$WORK/tests/setup_test.sh"
    expect 'a counting suite that names nothing' "$(suites setup)" \
        'FAILED: setup: 1 failed, ended with status 1' '3 passed, 1 failed'
    echo "echo '3 passed, 0 failed'" >"$WORK/tests/setup_test.sh"
    expect 'a suite without a failure' "$(suites setup)" '3 passed, 0 failed' '3 passed, 0 failed'
}

# What .ci/run prints, without its times.
ci() { PATH=$WORK/bin:$PATH bash "$WORK/.ci/run" 2>&1 | grep -v '^=== time: '; }

test_ci() {
    echo '    make test   # all of it' >"$WORK/README.md"
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'case $1 in' \
        'test) echo "FAILED: spec: a test: why"; echo "4 passed, 1 failed"; exit 2 ;;' \
        'lint) echo "lint lua: ok"; echo "x.c:1: bad"; echo "lint c: failed"; exit 2 ;;' \
        'asan) echo "make: no such thing"; exit 2 ;;' 'esac' >"$WORK/bin/make"
    chmod 755 "$WORK/bin/make"
    expect '.ci/run: the failures of every step' "$(ci)" 'FAILED: test: spec: a test: why' \
        'FAILED: lint: c: x.c:1: bad' 'FAILED: asan: ended with status 2' '5 passed, 3 failed'
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'if [ $1 = test ]; then' 'for i in $(seq 30); do echo "FAILED: e2e: $i: no"; done' \
        'echo "4 passed, 30 failed"; exit 1' 'fi' 'echo "1 passed, 0 failed"' >"$WORK/bin/make"
    expect '.ci/run: no more than 20' "$(ci)" 'FAILED: test: e2e: 20: no' '... and 10 more: see above' \
        '6 passed, 30 failed'
    printf '%s\n' '#!/bin/sh' 'echo "1 passed, 0 failed"' >"$WORK/bin/make"
    expect '.ci/run: all well' "$(ci)" '3 passed, 0 failed'
    expect '.ci/run: all well, and no line of a failure' "$(ci | grep FAILED)" ''
}

test_cmocka
test_busted
test_counting
test_ci
echo "$PASSED passed, $FAILED failed"
[ "$FAILED" -eq 0 ]
