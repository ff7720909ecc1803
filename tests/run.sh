#!/usr/bin/env bash
# Runs test suites and adds up what they report.
#
#   tests/run.sh SUITE...       suites: c spec e2e sdk
#
# Called by make, which sets SR_BUILD and SR_PROGRAM. The last line is "N passed, N failed". Status 1
# when a test failed, a program died, or a suite ran no test at all.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

: "${SR_BUILD:?run this through make test}" "${SR_PROGRAM:?run this through make test}"
LOGS=$SR_BUILD/log
mkdir -p "$LOGS"
PASSED=0
FAILED=0

# Runs a command with its output on screen and in a log; a hang ends as a failure. Status: its own.
logged() {
    local log=$1 seconds=$2
    shift 2
    timeout --foreground -k 10 "$seconds" "$@" </dev/null 2>&1 | tee "$log"
    return "${PIPESTATUS[0]}"
}

# Adds one command's result. A command that failed without counting a failure (it crashed, it hung,
# it leaked) counts as one, and so does one that ran no test.
add() {
    local name=$1 status=$2 passed=$3 failed=$4
    if [ "$failed" -eq 0 ] && [ "$status" -ne 0 ]; then
        failed=1
        echo "$name: ended with status $status$([ "$status" -ne 124 ] || echo ' (time is up)')"
    elif [ $((passed + failed)) -eq 0 ]; then
        failed=1
        echo "$name: ran no test"
    fi
    PASSED=$((PASSED + passed))
    FAILED=$((FAILED + failed))
}

# The sum of the numbers in the parts of a log that match a pattern (one number each).
sum_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$2" | grep -oE "$1" | grep -oE '[0-9]+' |
        awk '{ n += $1 } END { print n + 0 }'
}

run_c() {
    local program name status log
    for program in tests/c/test_*.c; do
        [ -e "$program" ] || break
        name=$(basename "$program" .c)
        log=$LOGS/$name.log
        logged "$log" 180 "$SR_BUILD/tests/$name"
        status=$?
        # A program that dies has printed no summary: count what it had finished.
        if grep -q '^\[  PASSED  \]' "$log"; then
            add "$name" $status "$(sum_of '^\[  PASSED  \] [0-9]+' "$log")" \
                "$(sum_of '^ *[0-9]+ FAILED TEST' "$log")"
        else
            add "$name" $status "$(grep -c '^\[       OK \]' "$log")" \
                "$(grep -cE '^\[  (FAILED|ERROR)   *\] ' "$log")"
        fi
    done
    [ -n "${name:-}" ] || add "tests/c" 0 0 0
}

run_busted() {
    local folder=$1 seconds=$2 status log
    log=$LOGS/$(basename "$folder").log
    logged "$log" "$seconds" "$SR_PROGRAM" --script tests/run.lua "$folder"
    status=$?
    add "$folder" $status "$(sum_of '^[0-9]+ success(es)? / ' "$log")" \
        $(($(sum_of ' / [0-9]+ failures? / ' "$log") + $(sum_of ' / [0-9]+ errors? / ' "$log")))
}

run_sdk() {
    local log=$LOGS/sdk.log
    logged "$log" 600 node tests/e2e/sdk.mjs
    add "sdk" $? "$(sum_of '^[0-9]+ passed,' "$log")" "$(sum_of ', [0-9]+ failed$' "$log")"
}

for suite in "$@"; do
    echo "--- $suite"
    case $suite in
        c) run_c ;;
        spec) run_busted tests/spec 900 ;;
        e2e) run_busted tests/e2e 1500 ;;
        sdk) run_sdk ;;
        *) echo "tests/run.sh: unknown suite \"$suite\"" >&2; exit 2 ;;
    esac
done

echo "$PASSED passed, $FAILED failed"
[ "$FAILED" -eq 0 ]
