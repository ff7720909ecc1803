#!/usr/bin/env bash
# Tests of src/setup: what the scripts say and do on machines that lack something. Nothing is
# installed and no engine of this machine is touched: the commands that would do so are replaced by
# ones that fail. Last line "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

PASSED=0
FAILED=0
WORK=$(mktemp -d "${TMPDIR:-/tmp}/sandbox-runner-test-XXXXXX")
SERVER=

cleanup() {
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# The scripts at a place that every user can read, and a home of their own.
chmod 755 "$WORK"
cp -r src/setup "$WORK/setup"
mkdir -p "$WORK/home" "$WORK/bin" "$WORK/bare"
SETUP=$WORK/setup
unset DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_TLS_VERIFY DOCKER_CERT_PATH XDG_RUNTIME_DIR \
    SR_ENGINE_SOCKET SR_ENGINE_LOG SR_DOCKERD_ARGS
export HOME=$WORK/home

STATUS=0
OUTPUT=
run() {
    OUTPUT=$(timeout 60 "$@" 2>&1 </dev/null)
    STATUS=$?
}

ok() { PASSED=$((PASSED + 1)); }
wrong() {
    FAILED=$((FAILED + 1))
    printf 'FAILED %s: %s\n' "$NAME" "$*"
}

# expect STATUS TEXT...: of the last run; each text must be in its output.
expect() {
    local status=$1 text
    shift
    if [ "$STATUS" -ne "$status" ]; then
        wrong "status $STATUS, wanted $status; it said: $OUTPUT"
        return
    fi
    for text in "$@"; do
        case $OUTPUT in
            *"$text"*) ;;
            *) wrong "lacks \"$text\": $OUTPUT"; return ;;
        esac
    done
    ok
}

expect_exactly() {
    if [ "$STATUS" -eq "$1" ] && [ "$OUTPUT" = "$2" ]; then ok; else wrong "status $STATUS, said: $OUTPUT"; fi
}

# A command of the PATH in $WORK/bin.
fake() { printf '#!/bin/sh\n%s\n' "$2" >"$WORK/bin/$1"; chmod 755 "$WORK/bin/$1"; }

# A PATH with what the scripts themselves call: no sudo, no node, and nothing that installs.
make_bare_path() {
    local tool
    for tool in bash sh env id cat cut sed grep tail head tr mktemp rm mkdir dirname basename sleep \
        timeout gcc pkg-config lua5.4 dpkg-query getent perl tee; do
        ! command -v "$tool" >/dev/null 2>&1 || ln -sf "$(command -v "$tool")" "$WORK/bare/$tool"
    done
    printf '#!/bin/sh\necho "apt-get was called"\nexit 1\n' >"$WORK/bare/apt-get"
    chmod 755 "$WORK/bare/apt-get"
}

# Runs as a user that is not root and has no sudo.
run_as_nobody() {
    if [ "$(id -u)" -eq 0 ]; then
        run setpriv --reuid 65534 --regid 65534 --clear-groups env "PATH=$WORK/bare" "$@"
    else
        run env "PATH=$WORK/bare" "$@"
    fi
}

# A socket where something answers as an engine does, until the test is over.
start_server() {
    # shellcheck disable=SC2016
    perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die;
        while (my $c = $s->accept) {
            while (<$c>) { last if /^\r?\n$/ }
            print $c "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK";
            close $c;
        }' "$1" </dev/null >/dev/null 2>&1 &
    SERVER=$!
    local i
    for i in $(seq 600); do
        [ ! -S "$1" ] || return 0
        sleep 0.05
    done
    echo "no server after $i tries"
    return 1
}

write_context() {
    mkdir -p "$HOME/.docker/contexts/meta/$1"
    printf '{"Name":"%s","Metadata":{},"Endpoints":{"docker":{"Host":"%s","SkipTLSVerify":false},"kubernetes":{"Host":"https://x"}}}' \
        "$2" "$3" >"$HOME/.docker/contexts/meta/$1/meta.json"
}

test_packages() {
    local group words
    NAME='packages.sh: no group'
    run bash "$SETUP/packages.sh"
    expect 2 usage
    NAME='packages.sh: an unknown group'
    run bash "$SETUP/packages.sh" biuld
    expect 2 'unknown group "biuld"' engine
    NAME='packages.sh: an unknown group after a known one'
    run bash "$SETUP/packages.sh" --check build biuld
    expect 2 'unknown group "biuld"'
    NAME='packages.sh --check: what this build needed is here'
    run bash "$SETUP/packages.sh" --check build
    expect_exactly 0 ''
    NAME='packages.sh --check: names what is missing and installs nothing'
    run env "PATH=$WORK/bare" bash "$SETUP/packages.sh" --check sdk
    expect_exactly 1 $'nodejs\nnpm'
    NAME='packages.sh --check: several groups'
    run env "PATH=$WORK/bare" bash "$SETUP/packages.sh" --check build sdk
    expect 1 make nodejs npm
    NAME='packages.sh: without root and sudo, the line for root'
    run_as_nobody bash "$SETUP/packages.sh" sdk
    expect 1 'Missing packages: nodejs npm' 'no sudo here' \
        'apt-get update && apt-get install -y --no-install-recommends nodejs npm'
    NAME='packages.sh: ... and nothing was tried, nor promised'
    case $OUTPUT in *'was called'* | *'to be installed now'*) wrong "$OUTPUT" ;; *) ok ;; esac
    NAME='packages.sh --line: the line for root has the engine, too, where none is'
    # One that is installed and stopped counts as there.
    SR_ENGINE_SOCKET=$WORK/none.sock run_as_nobody bash "$SETUP/engine.sh" --state
    words='nodejs npm'
    [ "$OUTPUT" != absent ] || words+=' docker.io'
    SR_ENGINE_SOCKET=$WORK/none.sock run_as_nobody bash "$SETUP/packages.sh" --line sdk
    expect 1 "install -y --no-install-recommends $words"
    NAME='packages.sh --line: ... but not where somebody named one'
    DOCKER_HOST=unix:///nowhere.sock run_as_nobody bash "$SETUP/packages.sh" --line sdk
    case $OUTPUT in *'nodejs npm docker.io'*) wrong "$OUTPUT" ;; *) expect 1 'nodejs npm' ;; esac
    NAME='packages.sh: not on Debian'
    rm "$WORK/bare/apt-get"
    run_as_nobody bash "$SETUP/packages.sh" sdk
    expect 1 'no Debian' 'nodejs npm'
    for group in build test sdk lint engine ping image; do
        NAME="packages.sh --check $group is known"
        run bash "$SETUP/packages.sh" --check "$group"
        if [ "$STATUS" -le 1 ]; then ok; else wrong "status $STATUS: $OUTPUT"; fi
    done
}

test_image_build() {
    local words
    for words in '' 'python' 'perl out.tar' 'python out.tar more'; do
        NAME="image-build.sh: wrong words \"$words\""
        # shellcheck disable=SC2086
        run bash "$SETUP/image-build.sh" $words
        expect 2 'usage: image-build.sh python|gcc OUT.tar'
    done
    NAME='image-build.sh: without root and sudo'
    run_as_nobody bash "$SETUP/image-build.sh" python "$WORK/out.tar"
    expect 1 'needs root' 'no sudo here' 'As root: sandbox-runner --get-images'
    NAME='image-build.sh: ... and the program is named with its path'
    mkdir -p "$WORK/bin"
    fake sandbox-runner 'exit 0'
    mkdir -p "$WORK/share/sandbox-runner"
    cp -r "$SETUP" "$WORK/share/sandbox-runner/setup"
    run_as_nobody bash "$WORK/share/sandbox-runner/setup/image-build.sh" python "$WORK/out.tar"
    expect 1 "As root: $WORK/bin/sandbox-runner --get-images"
    NAME='image-build.sh: ... and no file is left'
    if [ -e "$WORK/out.tar" ]; then wrong 'it is there'; else ok; fi
}

test_state() {
    local socket=$WORK/live.sock
    start_server "$socket" || return
    NAME='engine.sh: wrong words'
    run bash "$SETUP/engine.sh" --sate
    expect 2 usage
    NAME='engine.sh --state: a live socket'
    DOCKER_HOST=unix://$socket run bash "$SETUP/engine.sh" --state
    expect_exactly 0 up
    NAME='engine.sh: a live socket is used as it is'
    DOCKER_HOST=unix://$socket run bash "$SETUP/engine.sh"
    expect_exactly 0 "engine: unix://$socket answers"
    NAME='engine.sh --state: the same without curl'
    DOCKER_HOST=unix://$socket run env "PATH=$WORK/bare" bash "$SETUP/engine.sh" --state
    expect_exactly 0 up
    NAME='engine.sh --state: SR_ENGINE_SOCKET comes first'
    SR_ENGINE_SOCKET=$socket DOCKER_HOST=unix:///nowhere.sock run bash "$SETUP/engine.sh" --state
    expect_exactly 0 up
    NAME='engine.sh --state: a dead DOCKER_HOST'
    DOCKER_HOST=unix:///nowhere.sock run bash "$SETUP/engine.sh" --state
    expect_exactly 0 down
    NAME='engine.sh: a dead DOCKER_HOST is said, and nothing is started in its place'
    DOCKER_HOST=unix:///nowhere.sock run env "PATH=$WORK/bin:$PATH" bash "$SETUP/engine.sh"
    expect 1 'DOCKER_HOST names unix:///nowhere.sock' 'nothing answers'
    NAME='engine.sh: an address that it cannot judge'
    DOCKER_HOST=ssh://host run bash "$SETUP/engine.sh" --state
    expect 0 'ssh://host' down
    NAME='engine.sh: ssh, with what to do instead'
    DOCKER_HOST=ssh://host run bash "$SETUP/engine.sh"
    expect 1 'DOCKER_HOST names ssh://host' 'ssh -L' 'engine.address'
    NAME='engine.sh --state: a socket for others only'
    chmod 000 "$socket"
    DOCKER_HOST=unix://$socket run_as_nobody bash "$SETUP/engine.sh" --state
    expect_exactly 0 denied
    NAME='engine.sh: ... and what to do about it'
    DOCKER_HOST=unix://$socket run_as_nobody bash "$SETUP/engine.sh"
    expect 1 'permission denied' 'usermod -aG docker'
    chmod 700 "$socket"
}

test_contexts() {
    local socket=$WORK/live.sock
    write_context aa other unix:///other.sock
    write_context bb mine "unix://$socket"
    NAME='engine.sh: the context of the settings'
    printf '{\n\t"auths": {},\n\t"currentContext": "mine"\n}\n' >"$HOME/.docker/config.json"
    run bash "$SETUP/engine.sh" --places
    expect_exactly 0 "unix://$socket"
    NAME='engine.sh: DOCKER_CONTEXT is stronger, and the only place'
    DOCKER_CONTEXT=other run bash "$SETUP/engine.sh" --places
    expect_exactly 0 unix:///other.sock
    NAME='engine.sh: a context where nothing answers'
    DOCKER_CONTEXT=other run env "PATH=$WORK/bin:$PATH" bash "$SETUP/engine.sh"
    expect 1 'context "other" names unix:///other.sock' 'nothing answers'
    NAME='engine.sh: an unknown context'
    DOCKER_CONTEXT=nope run env "PATH=$WORK/bin:$PATH" bash "$SETUP/engine.sh"
    expect 1 'context "nope" does not exist' DOCKER_CONTEXT
    NAME='engine.sh: DOCKER_HOST is stronger than a context'
    DOCKER_HOST=unix:///a.sock DOCKER_CONTEXT=other run bash "$SETUP/engine.sh" --places
    expect_exactly 0 unix:///a.sock
}

# What the program itself would try, one address a line.
places_of_program() {
    cat >"$WORK/places.lua" <<'LUA'
local address = require "sandbox_runner.address"
for _, place in ipairs(address.candidates { allow_plain_tcp = true }) do
  if place.address:find "://" then print(place.address) end
end
LUA
    "$SR_PROGRAM" --script "$WORK/places.lua"
}

test_order() {
    local setting
    if [ -z "${SR_PROGRAM:-}" ]; then
        echo "skipped: engine.sh looks where the program looks (SR_PROGRAM is not set)"
        return
    fi
    rm "$HOME/.docker/config.json"
    for setting in A=b XDG_RUNTIME_DIR=/run/somewhere DOCKER_HOST=unix:///x.sock \
        DOCKER_HOST=tcp://host:2376 DOCKER_CONTEXT=mine DOCKER_CONTEXT=default DOCKER_CONTEXT=nope \
        DOCKER_HOST=; do
        NAME="engine.sh looks where the program looks: $setting"
        export "${setting?}"
        run bash "$SETUP/engine.sh" --places
        expect_exactly 0 "$(places_of_program)"
        unset "${setting%%=*}"
    done
}

test_start() {
    local socket=$WORK/none.sock
    fake sudo "while [ \"\${1#-}\" != \"\$1\" ]; do shift; done; exec \"\$@\""
    fake iptables 'exit 0'
    fake dockerd 'echo "a line before"; echo "failed to start daemon: the reason of this test"; exit 1'
    NAME='engine.sh: a dockerd that ends at once shows its log'
    SR_ENGINE_SOCKET=$socket SR_ENGINE_LOG=$WORK/dockerd.log \
        run env "PATH=$WORK/bin:$PATH" bash "$SETUP/engine.sh"
    expect 1 'starting dockerd (process' "$WORK/dockerd.log" 'a line before' 'the reason of this test' 'ended at once'
    NAME='engine.sh: a dockerd that fails for want of networks is tried without'
    fake dockerd 'echo "args: $*"; echo "failed to start daemon: iptables is broken"; exit 1'
    SR_ENGINE_SOCKET=$socket SR_ENGINE_LOG=$WORK/dockerd.log SR_DOCKERD_ARGS="--data-root $WORK/data" \
        run env "PATH=$WORK/bin:$PATH" bash "$SETUP/engine.sh"
    expect 1 "args: --data-root $WORK/data" 'without networks' '--bridge=none' 'iptables is broken'
    NAME='engine.sh: without root and sudo, starting is for root'
    ln -sf "$WORK/bin/dockerd" "$WORK/bare/dockerd"
    SR_ENGINE_SOCKET=$socket run_as_nobody bash "$SETUP/engine.sh"
    expect 1 'takes root' 'systemctl start docker'
}

test_with_engine() {
    NAME='with-engine.sh: hands on words, output and status'
    DOCKER_HOST=unix:///nowhere.sock run bash "$SETUP/with-engine.sh" sh -c 'echo "$1|$2"; exit 7' - 'a b' ''
    expect_exactly 7 'a b|'
    # A user without the right to the socket, a sudo that shows what it is asked for.
    local socket=$WORK/live.sock path=$WORK/sudo:$WORK/bare
    chmod 000 "$socket"
    mkdir -p "$WORK/sudo"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nfor word in "$@"; do echo "word $word"; done\n' >"$WORK/sudo/sudo"
    printf '#!/bin/sh\n[ "$*" = "group docker" ] && echo docker:x:4242:\n' >"$WORK/sudo/getent"
    chmod -R 755 "$WORK/sudo"
    NAME='with-engine.sh: takes the group by way of root, with the variables that count'
    DOCKER_HOST=unix://$socket SR_BUILD='a b' OTHER=1 \
        run_as_nobody env "PATH=$path" bash "$SETUP/with-engine.sh" a 'b c'
    expect 0 'word env' "word DOCKER_HOST=unix://$socket" 'word SR_BUILD=a b' 'word setpriv' 'word --groups=' \
        ',4242' $'word --\nword a\nword b c'
    NAME='with-engine.sh: ... and no others'
    case $OUTPUT in *OTHER=* | *'word -g'*) wrong "$OUTPUT" ;; *) ok ;; esac
    chmod 700 "$socket"
}

if [ "$(id -u)" -eq 0 ] && ! command -v setpriv >/dev/null 2>&1; then
    echo "setpriv (util-linux) is needed to try what happens to other users"
    exit 1
fi
make_bare_path
test_packages
test_image_build
test_state
test_contexts
test_order
test_start
test_with_engine
echo "$PASSED passed, $FAILED failed"
[ "$FAILED" -eq 0 ]
