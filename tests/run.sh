#!/usr/bin/env bash
# Runs test suites and adds up what they report.
#
#   tests/run.sh SUITE...       suites: c spec setup run e2e conformance sdk
#   tests/run.sh SUITE... + SUITE...    groups side by side: most tests wait most of the time
#
# e2e/1 and e2e/2 are the two halves of e2e.
#
# Called by make, which sets SR_BUILD and SR_PROGRAM. The last line is "N passed, N failed", and
# ", N skipped" after it when there are any; above it stands one line "FAILED: SUITE: NAME: MESSAGE"
# for each failure. Status 1 when a test failed, a program died, or a suite ran no test at all. With
# CI=true a skipped test is a failure, too, but for those of ALLOWED_SKIPS.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

: "${SR_BUILD:?run this through make test}" "${SR_PROGRAM:?run this through make test}"
LOGS=$SR_BUILD/log
mkdir -p "$LOGS"
# The Node that make installs; another one must be of version 22 at least.
NODE=$(echo "${MCP_SDK_DIR:-build/node}"/node_modules/node-linux-*/bin/node)
[ -x "$NODE" ] || NODE=node
FAILURES=$(mktemp)
trap 'rm -f "$FAILURES"' EXIT
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

# Keeps lines "NAME: MESSAGE" of standard input for the end.
note() {
    sed "s|^|FAILED: $1: |; s/[: ]*$//" | cut -c 1-300 >>"$FAILURES"
}

# Adds one command's result. A command that failed without counting a failure (it crashed, it hung,
# it leaked) counts as one, and so does one that ran no test. Standard input: the failures as note()
# takes them.
add() {
    local name=$1 status=$2 passed=$3 failed=$4 notes
    notes=$(cat)
    if [ "$failed" -eq 0 ] && [ "$status" -ne 0 ]; then
        failed=1
        notes="ended with status $status$([ "$status" -ne 124 ] || echo ' (time is up)')${notes:+: $notes}"
    elif [ $((passed + failed)) -eq 0 ]; then
        failed=1
        notes="ran no test"
    elif [ "$failed" -gt 0 ] && [ -z "$notes" ]; then
        notes="$failed failed, ended with status $status"
    fi
    [ "$failed" -eq 0 ] || note "$name" <<<"$notes"
    PASSED=$((PASSED + passed))
    FAILED=$((FAILED + failed))
}

# Takes lines "NAME (REASON)" of skipped tests, on standard input.
add_skipped() {
    local line
    while IFS= read -r line; do
        if [ "${CI:-}" = true ] && ! is_allowed "$line"; then
            note skipped <<<"$line"
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

# The failures in a log of cmocka: "[  FAILED  ] NAME" or "[  ERROR   ] NAME" after the messages of
# that test; the summary, after a line of "=", has the names again. A test without an end is one that
# the program died in.
cmocka_failures() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        /^\[==========\] [0-9]+ test/ { exit }
        /^\[ RUN      \] / { name = $4; text = ""; next }
        /^\[       OK \] |^\[  SKIPPED \] / { name = ""; next }
        /^\[  (FAILED|ERROR)   *\] [A-Za-z_0-9]+$/ { print $NF ": " text; name = ""; next }
        /^\[  ERROR   \] --- / { sub(/^\[  ERROR   \] --- /, "") }
        /^\[   LINE   \] --- / { sub(/^\[   LINE   \] --- /, "("); sub(/: error:.*/, ")") }
        name != "" && text == "" { text = $0; next }
        name != "" && /^\(/ { text = text " " $0 }
        END { if (name != "") print name ": did not end " text }'
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
            add "c: $name" $status "$(sum_of '^\[  PASSED  \] [0-9]+' "$log")" \
                "$(sum_of '^ *[0-9]+ FAILED TEST' "$log")" < <(cmocka_failures "$log")
        else
            add "c: $name" $status "$(grep -c '^\[       OK \]' "$log")" \
                "$(grep -cE '^\[  (FAILED|ERROR)   *\] [A-Za-z_0-9]+$' "$log")" \
                < <(cmocka_failures "$log")
        fi
        # The agent is another process: what a sanitizer says of it fails no test by itself.
        if grep -qE 'ERROR: [A-Za-z]*Sanitizer|: runtime error: ' "$log"; then
            grep -m 1 -E 'ERROR: [A-Za-z]*Sanitizer|: runtime error: ' "$log" | note "c: $name"
            FAILED=$((FAILED + 1))
        fi
        add_skipped < <(sed -nE 's/^\[  SKIPPED \] (test_.*)$/\1 (no reason given)/p' "$log" | sort -u)
    done
    [ -n "${name:-}" ] || add c 0 0 0 </dev/null
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

# The failures of busted: a line "Failure -> FILE @ LINE" or "Error -> FILE...", the name, the message
# up to an empty line. A file that cannot be loaded has the message in the first line.
busted_failures() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        function flush() { if (name != "") print name ": " text; name = "" }
        /^(Failure|Error|Pending) (->|→) / {
            flush()
            if (/^Pending/) next
            sub(/^[A-Za-z]+ (->|→) /, "")
            text = ""
            if (/ @ [0-9]+$/) { getline name } else { name = $0; getline }
            next
        }
        /^$/ { flush(); next }
        name != "" { text = text (text == "" ? "" : " ") $0 }
        END { flush() }'
}

# Arguments: name, seconds, files or folders.
run_busted() {
    local name=$1 seconds=$2 status log
    shift 2
    log=$LOGS/$name.log
    logged "$log" "$seconds" "$SR_PROGRAM" --script tests/run.lua "$@"
    status=$?
    add "$name" $status "$(sum_of '^[0-9]+ success(es)? / ' "$log")" \
        $(($(sum_of ' / [0-9]+ failures? / ' "$log") + $(sum_of ' / [0-9]+ errors? / ' "$log"))) \
        < <(busted_failures "$log")
    add_skipped < <(pending_of "$log")
}

# A program whose last line is "N passed, N failed"; lines "skipped: NAME (REASON)" and
# "FAILED NAME: MESSAGE" may stand above.
run_counting() {
    local name=$1 seconds=$2 log status
    shift 2
    log=$LOGS/$name.log
    logged "$log" "$seconds" "$@"
    status=$?
    add "$name" $status "$(sum_of '^[0-9]+ passed,' "$log")" "$(sum_of ', [0-9]+ failed$' "$log")" \
        < <(sed -n 's/^FAILED //p' "$log")
    add_skipped < <(sed -n 's/^skipped: //p' "$log")
}

# The files of e2e, every second one beginning with the given one (1 or 2).
half_of_e2e() {
    printf '%s\n' tests/e2e/*_spec.lua | awk -v first="$1" 'NR % 2 == first % 2'
}

# Takes over what a group of suites has said and counted.
add_group() {
    local name=$1 status=$2 log=$3 passed=0 failed=0 skipped=0
    grep -v '^FAILED: ' "$log" | sed '$d'
    read -r passed _ failed _ skipped _ < <(tail -n 1 "$log" |
        grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$')
    grep '^FAILED: ' "$log" >>"$FAILURES"
    if [ "$status" -ne 0 ] && [ "${failed:-0}" -eq 0 ]; then
        echo "ended with status $status" | note "$name"
        failed=1
    fi
    PASSED=$((PASSED + ${passed:-0}))
    FAILED=$((FAILED + ${failed:-0}))
    SKIPPED=$((SKIPPED + ${skipped:-0}))
}

# Runs groups of suites, separated by "+", side by side; what they say comes group by group.
run_groups() {
    local group='' groups=() processes=() i
    for suite in "$@" +; do
        if [ "$suite" = + ]; then
            groups+=("${group# }")
            group=
        else
            group+=" $suite"
        fi
    done
    for i in "${!groups[@]}"; do
        # shellcheck disable=SC2086
        bash tests/run.sh ${groups[i]} >"$LOGS/group-$i.log" 2>&1 &
        processes+=($!)
    done
    echo "side by side: $(printf '(%s) ' "${groups[@]}")"
    for i in "${!groups[@]}"; do
        wait "${processes[i]}"
        add_group "${groups[i]}" $? "$LOGS/group-$i.log"
    done
}

if [[ " $* " == *" + "* ]]; then
    run_groups "$@"
    set --
fi
for suite in "$@"; do
    echo "--- $suite"
    case $suite in
        c) run_c ;;
        spec) run_busted spec 900 tests/spec ;;
        e2e) run_busted e2e 1500 tests/e2e ;;
        e2e/[12])
            mapfile -t half < <(half_of_e2e "${suite#*/}")
            run_busted "${suite/\//-}" 1500 "${half[@]}"
            ;;
        setup) run_counting setup 300 bash tests/setup_test.sh ;;
        run) run_counting run 60 bash tests/run_test.sh ;;
        conformance) run_counting conformance 300 "$NODE" tests/conformance/run.mjs ;;
        sdk) run_counting sdk 600 "$NODE" tests/e2e/sdk.mjs ;;
        *) echo "tests/run.sh: unknown suite \"$suite\"" >&2; exit 2 ;;
    esac
done

cat "$FAILURES"
echo "$PASSED passed, $FAILED failed$([ $SKIPPED -eq 0 ] || echo ", $SKIPPED skipped")"
[ "$FAILED" -eq 0 ]
