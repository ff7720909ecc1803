#!/usr/bin/env bash
# Runs test suites and adds up what they report.
#
#   tests/run.sh SUITE...       suites: c spec setup e2e sdk
#
# Called by make, which sets SR_BUILD and SR_PROGRAM. The last line is "N passed, N failed", and
# ", N skipped" after it when there are any. Status 1 when a test failed, a program died, or a suite
# ran no test at all. With CI=true a skipped test is a failure, too, but for those of ALLOWED_SKIPS.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

: "${SR_BUILD:?run this through make test}" "${SR_PROGRAM:?run this through make test}"
LOGS=$SR_BUILD/log
mkdir -p "$LOGS"
PASSED=0
FAILED=0
SKIPPED=0

# What a machine for continuous integration may lack: ends of "NAME (REASON)".
ALLOWED_SKIPS='(needs root to mount a small tmpfs)
(mounting a tmpfs is not allowed here)
(the engine has no socket here)
test_read_only_scratch (no reason given)'

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

# Takes lines "NAME (REASON)" of skipped tests, on standard input.
add_skipped() {
    local line
    while IFS= read -r line; do
        if [ "${CI:-}" = true ] && ! is_allowed "$line"; then
            echo "skipped in CI, so failed: $line"
            FAILED=$((FAILED + 1))
        else
            echo "skipped: $line"
            SKIPPED=$((SKIPPED + 1))
        fi
    done
}

is_allowed() {
    local pattern
    while IFS= read -r pattern; do
        case $1 in *"$pattern") return 0 ;; esac
    done <<<"$ALLOWED_SKIPS"
    return 1
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
        # The agent is another process: what a sanitizer says of it fails no test by itself.
        if grep -qE 'ERROR: [A-Za-z]*Sanitizer|: runtime error: ' "$log"; then
            echo "$name: a sanitizer has something to say"
            FAILED=$((FAILED + 1))
        fi
        add_skipped < <(sed -nE 's/^\[  SKIPPED \] (test_.*)$/\1 (no reason given)/p' "$log" | sort -u)
    done
    [ -n "${name:-}" ] || add "tests/c" 0 0 0
}

# The pending tests of busted: a line "Pending -> FILE @ LINE", the name, and "FILE:LINE: REASON" or
# an empty line.
pending_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        /^Pending (->|→) / {
            getline name
            if (getline reason <= 0 || reason == "") reason = "no reason given"
            sub(/^[^ ]*:[0-9]+: /, "", reason)
            print name " (" reason ")"
        }'
}

run_busted() {
    local folder=$1 seconds=$2 status log
    log=$LOGS/$(basename "$folder").log
    logged "$log" "$seconds" "$SR_PROGRAM" --script tests/run.lua "$folder"
    status=$?
    add "$folder" $status "$(sum_of '^[0-9]+ success(es)? / ' "$log")" \
        $(($(sum_of ' / [0-9]+ failures? / ' "$log") + $(sum_of ' / [0-9]+ errors? / ' "$log")))
    add_skipped < <(pending_of "$log")
}

# A program whose last line is "N passed, N failed"; "skipped: NAME (REASON)" lines may stand above.
run_counting() {
    local name=$1 seconds=$2 log status
    shift 2
    log=$LOGS/$name.log
    logged "$log" "$seconds" "$@"
    status=$?
    add "$name" $status "$(sum_of '^[0-9]+ passed,' "$log")" "$(sum_of ', [0-9]+ failed$' "$log")"
    add_skipped < <(sed -n 's/^skipped: //p' "$log")
}

for suite in "$@"; do
    echo "--- $suite"
    case $suite in
        c) run_c ;;
        spec) run_busted tests/spec 900 ;;
        e2e) run_busted tests/e2e 1500 ;;
        setup) run_counting setup 300 bash tests/setup_test.sh ;;
        sdk) run_counting sdk 600 node tests/e2e/sdk.mjs ;;
        *) echo "tests/run.sh: unknown suite \"$suite\"" >&2; exit 2 ;;
    esac
done

echo "$PASSED passed, $FAILED failed$([ $SKIPPED -eq 0 ] || echo ", $SKIPPED skipped")"
[ "$FAILED" -eq 0 ]
