#!/usr/bin/env bash
# Sees to it that a Docker engine answers: uses the one that does, starts the one that is installed,
# and installs Debian's docker.io only where there is no engine at all.
#
#   engine.sh           find, start or install; status 0 when an engine answers
#   engine.sh --state   print up, denied (a socket is there, but not for this user), down, or absent
#                       (down, and none is installed either)
#   engine.sh --places  print the places that are tried, in their order
#
# SR_ENGINE_SOCKET, SR_ENGINE_LOG and SR_DOCKERD_ARGS stand for the socket, dockerd's log and its
# arguments, so that the starting of an engine can be tried beside the machine's own.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
WAIT_SECONDS=60
SYSTEM_SOCKET=${SR_ENGINE_SOCKET:-/var/run/docker.sock}
HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}

say() { echo "engine: $*"; }
die() { printf 'engine: %s\n' "$@" >&2; exit 1; }

AS_ROOT=()
if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null 2>&1; then
    AS_ROOT=(sudo)
fi
can_be_root() { [ "$(id -u)" -eq 0 ] || [ ${#AS_ROOT[@]} -gt 0 ]; }

# --- who answers ---

# perl is part of every Debian; curl is the usual thing elsewhere, and the one that knows TLS.
ping_unix() {
    if command -v curl >/dev/null 2>&1; then
        [ "$("$@" curl -s -m 5 --unix-socket "$SOCKET" http://localhost/_ping 2>/dev/null)" = OK ]
    else
        # shellcheck disable=SC2016
        "$@" perl -MIO::Socket::UNIX -e '
            alarm 5;
            my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or exit 1;
            print $s "GET /_ping HTTP/1.0\r\n\r\n"; $s->flush;
            local $/; my $answer = <$s> // "";
            exit($answer =~ m{^HTTP/1\.. 200} ? 0 : 1);' "$SOCKET" 2>/dev/null
    fi
}

# $1: the address, $2: a folder with keys, or nothing for plain HTTP.
ping_tcp() {
    local rest=${1#tcp://} certs=$2
    bash "$HERE/packages.sh" ping >&2 || return 1
    if [ -n "$certs" ]; then
        curl -sf -m 5 --cacert "$certs/ca.pem" --cert "$certs/cert.pem" --key "$certs/key.pem" \
            "https://$rest/_ping"
    else
        curl -sf -m 5 "http://$rest/_ping"
    fi >/dev/null 2>&1
}

# A value of an object in one line of JSON, where the name is a member of the outermost object.
json_name() { sed -n 's/^{[^{]*"Name" *: *"\([^"]*\)".*/\1/p'; }

# Read from the client's files, as the client need not be installed. Sets CONTEXT to the name of the
# Docker context in use ("" for the default one), CONTEXT_HOST to its address ("" when there is none
# of that name) and CERTS to the folder with its keys, if it has any.
find_context() {
    local dir=${DOCKER_CONFIG:-$HOME/.docker} file text
    CONTEXT=${DOCKER_CONTEXT:-} CONTEXT_HOST=
    [ -n "$CONTEXT" ] || CONTEXT=$(tr -d '\n' 2>/dev/null <"$dir/config.json" |
        sed -n 's/.*"currentContext"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p')
    [ "$CONTEXT" != default ] || CONTEXT=
    [ -n "$CONTEXT" ] || return
    for file in "$dir"/contexts/meta/*/meta.json; do
        [ -r "$file" ] || continue
        text=$(tr -d '\n' <"$file")
        [ "$(json_name <<<"$text")" = "$CONTEXT" ] || continue
        CONTEXT_HOST=$(grep -o '"docker" *: *{[^}]*}' <<<"$text" |
            sed -n 's/.*"Host" *: *"\([^"]*\)".*/\1/p' | head -n 1)
        CERTS=$dir/contexts/tls/$(basename "$(dirname "$file")")/docker
        [ -d "$CERTS" ] || CERTS=
        return
    done
}

# Sets PLACES in the order in which the program looks (lua/sandbox_runner/address.lua), and NAMED to
# who named the only place, if somebody did: an engine at another one would not be used.
find_places() {
    local runtime=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}
    PLACES=() NAMED='' CERTS=''
    if [ -n "${SR_ENGINE_SOCKET:-}" ]; then
        PLACES=("unix://$SR_ENGINE_SOCKET")
        return
    fi
    if [ -n "${DOCKER_HOST:-}" ]; then
        PLACES=("$DOCKER_HOST") NAMED=DOCKER_HOST
        [ -z "${DOCKER_TLS_VERIFY:-}" ] || CERTS=${DOCKER_CERT_PATH:-$HOME/.docker}
        return
    fi
    find_context
    if [ -n "$CONTEXT" ]; then
        NAMED="the Docker context \"$CONTEXT\""
        [ -z "$CONTEXT_HOST" ] || PLACES=("$CONTEXT_HOST")
        return
    fi
    PLACES=("$SYSTEM_SOCKET" "$runtime/docker.sock" "$HOME/.docker/run/docker.sock"
        "$HOME/.docker/desktop/docker.sock" "$HOME/.colima/default/docker.sock"
        "$HOME/.orbstack/run/docker.sock" "$runtime/podman/podman.sock" /run/podman/podman.sock)
    PLACES=("${PLACES[@]/#/unix://}")
}

# Sets STATE to up, denied or down, and HOST to the candidate that decided it.
look() {
    local host
    STATE=down HOST=
    find_places
    for host in "${PLACES[@]}"; do
        case $host in
            unix://*)
                SOCKET=${host#unix://}
                if [ -S "$SOCKET" ] && [ ! -w "$SOCKET" ]; then
                    [ "$STATE" != down ] || STATE=denied HOST=$host
                elif [ -S "$SOCKET" ] && ping_unix; then
                    STATE=up HOST=$host
                    return
                fi
                ;;
            tcp://*)
                if ping_tcp "$host" "$CERTS"; then
                    STATE=up HOST=$host
                    return
                fi
                ;;
            *) say "cannot judge the engine at $host: only unix:// and tcp:// are known" >&2 ;;
        esac
    done
}

# --- what is installed ---

has_package() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints what kind of engine is installed: dockerd, desktop, snap, or nothing.
installed_engine() {
    local package
    if command -v dockerd >/dev/null 2>&1; then
        echo dockerd
        return
    fi
    for package in docker-ce moby-engine docker.io; do
        if has_package "$package"; then
            echo dockerd
            return
        fi
    done
    if has_package docker-desktop || [ -d /opt/docker-desktop ]; then
        echo desktop
    elif [ -d /snap/docker ]; then
        echo snap
    fi
}

# --- starting ---

log_file() {
    if [ -n "${SR_ENGINE_LOG:-}" ]; then
        echo "$SR_ENGINE_LOG"
        return
    fi
    if [ "$(id -u)" -eq 0 ] || [ ${#AS_ROOT[@]} -gt 0 ]; then
        if [ -d /var/log ]; then
            echo /var/log/sandbox-runner-dockerd.log
            return
        fi
    fi
    mkdir -p "${XDG_STATE_HOME:-$HOME/.local/state}/sandbox-runner"
    echo "${XDG_STATE_HOME:-$HOME/.local/state}/sandbox-runner/dockerd.log"
}

# Starts dockerd so that it outlives make and this shell: a session of its own, and none of the
# descriptors that came from above (make's job pipe, a CI's output), which would keep their readers
# waiting for as long as the engine runs. Prints its process id.
spawn_dockerd() {
    # shellcheck disable=SC2016
    "${AS_ROOT[@]}" bash -c '
        log=$1; shift
        exec 9>&1
        for fd in /proc/$$/fd/*; do
            fd=${fd##*/}
            case $fd in 0|1|2|9|255) ;; *) eval "exec $fd>&-" ;; esac
        done
        ( exec 9>&- && exec setsid nohup dockerd "$@" ) </dev/null >>"$log" 2>&1 &
        echo $! >&9' start "$LOG" "$@"
}

# Not `kill -0`: under sudo that is a program of its own, which a bare system lacks. A zombie (where
# process 1 reaps nothing) is not alive.
alive() { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }

# Waits until the engine answers. Status 1 when the time is up or the process ($1, if any) has ended.
await_answer() {
    local pid=${1:-} until=$((SECONDS + WAIT_SECONDS))
    SOCKET=$SYSTEM_SOCKET
    while [ $SECONDS -lt $until ]; do
        ! ping_unix "${AS_ROOT[@]}" || return 0
        [ -z "$pid" ] || alive "$pid" || return 1
        sleep 0.2
    done
    return 1
}

# A dockerd that was killed leaves files with process ids behind. The next one takes such a file for a
# living engine when the id is in use again, or while a dead process is listed because nobody has
# reaped it. $1: the file, $2: the name of the program that it should be.
drop_stale_pid() {
    local pid _
    pid=$("${AS_ROOT[@]}" cat "$1" 2>/dev/null) || return 0
    for _ in {1..25}; do # it does not answer: perhaps it is about to end
        if ! alive "$pid" || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$2" ]; then
            "${AS_ROOT[@]}" rm -f "$1"
            return
        fi
        sleep 0.2
    done
}

drop_stale_pids() {
    [ -z "${SR_DOCKERD_ARGS:-}" ] || return 0 # they may name places of their own
    drop_stale_pid /var/run/docker.pid dockerd
    drop_stale_pid /var/run/docker/containerd/containerd.pid containerd
}

start_in_background() {
    local pid args=() extra
    read -r -a args <<<"${SR_DOCKERD_ARGS:-}"
    LOG=$(log_file)
    "${AS_ROOT[@]}" tee "$LOG" </dev/null >/dev/null
    # Sandboxes have no network, so an engine that cannot make one (no netfilter in the kernel, as in
    # some containers) still serves; that comes second, because other users of it may want networks.
    for extra in "" "--iptables=false --bridge=none"; do
        [ -z "$extra" ] || say "starting dockerd without networks: $extra"
        drop_stale_pids
        # shellcheck disable=SC2086
        pid=$(spawn_dockerd "${args[@]}" $extra) || return 1
        say "starting dockerd (process $pid, log $LOG)"
        ! await_answer "$pid" || return 0
        alive "$pid" && break
        "${AS_ROOT[@]}" tail -n 20 "$LOG" | grep -qiE 'iptables|nftables|bridge' || break
    done
    echo "The last lines of $LOG, and its reason if it names one:" >&2
    "${AS_ROOT[@]}" tail -n 20 "$LOG" >&2
    "${AS_ROOT[@]}" grep -E '^panic:|level=fatal|failed to start' "$LOG" | head -n 3 >&2
    if alive "$pid"; then
        die "dockerd runs (process $pid) but did not answer on $SYSTEM_SOCKET within $WAIT_SECONDS s"
    fi
    die "dockerd ended at once; its reason is in the lines above"
}

start_by_systemd() {
    say "starting docker.service"
    if "${AS_ROOT[@]}" systemctl start docker.service && await_answer; then
        return
    fi
    echo "The last lines of its journal:" >&2
    "${AS_ROOT[@]}" journalctl -u docker.service -n 20 --no-pager >&2
    die "docker.service did not come up; the reason is in the lines above"
}

start_engine() {
    can_be_root || die "the Docker engine is installed but not running, and starting it takes root." \
        "Run as root: systemctl start docker    (without systemd: dockerd)"
    # An engine that was put there without its packages' dependencies lacks this one most often.
    command -v iptables >/dev/null 2>&1 || bash "$HERE/packages.sh" engine ||
        say "going on without iptables"
    if [ -d /run/systemd/system ] && [ -z "${SR_ENGINE_SOCKET:-}" ]; then
        start_by_systemd
    else
        start_in_background
    fi
}

# --- the whole ---

explain_denied() {
    SOCKET=${HOST#unix://}
    if [ ${#AS_ROOT[@]} -gt 0 ] && getent group docker >/dev/null && ping_unix "${AS_ROOT[@]}"; then
        say "$HOST answers, but only to the group docker; this run goes through sudo"
        say "to do without: sudo usermod -aG docker $(id -un), then log in again (that group is as good as root)"
        return
    fi
    die "permission denied on $SOCKET: an engine is there, but this user may not use it." \
        "Have root run: usermod -aG docker $(id -un)    and log in again, or use sudo."
}

explain_absent() {
    if [ -n "$NAMED" ] && [ ${#PLACES[@]} -eq 0 ]; then
        die "$NAMED does not exist." "Choose one of \`docker context ls\`, or unset DOCKER_CONTEXT."
    elif [[ $NAMED && ${PLACES[0]} == ssh://* ]]; then
        die "$NAMED names ${PLACES[0]}, and ssh is not spoken here." \
            "Forward the socket (ssh -L /tmp/engine.sock:/var/run/docker.sock HOST) and set" \
            "DOCKER_HOST=unix:///tmp/engine.sock, or engine.address = \"unix:///tmp/engine.sock\" in init.lua."
    elif [ -n "$NAMED" ]; then
        die "$NAMED names ${PLACES[0]}, and nothing answers there." \
            "Start that engine, or choose none to use the one of this machine."
    fi
    case $1 in
        desktop) die "Docker Desktop is installed but not running; start it (systemctl --user start docker-desktop)" ;;
        snap) die "the Docker snap is installed but not running; start it (sudo snap start docker)" ;;
    esac
}

# What answers here may still be refused by the program. It is said and no more: whether init.lua
# allows it is not known here.
warn_of_plain_tcp() {
    case $HOST in tcp://*) [ -z "$CERTS" ] || return ;; *) return ;; esac
    say "plain tcp gives root to whoever can reach it, so the program refuses it: set DOCKER_TLS_VERIFY=1" >&2
    say "and DOCKER_CERT_PATH, or, if you mean it, engine.allow_plain_tcp = true in init.lua" >&2
}

install_engine() {
    say "no engine is installed here"
    bash "$HERE/packages.sh" engine ||
        die "no engine can be installed; any Docker engine from 20.10 on will do (DOCKER_HOST names one elsewhere)"
    # The package may have started it already; give it the time to come up.
    local until=$((SECONDS + 5))
    while [ $SECONDS -lt $until ]; do
        look
        [ "$STATE" = down ] || return
        sleep 0.5
    done
}

main() {
    local kind
    case ${1:-} in
        '' | --state) ;;
        --places)
            find_places
            [ ${#PLACES[@]} -eq 0 ] || printf '%s\n' "${PLACES[@]}"
            return
            ;;
        *) echo "usage: engine.sh [--state|--places]" >&2; exit 2 ;;
    esac
    look
    if [ "${1:-}" = --state ]; then
        [ "$STATE" != down ] || [ -n "$NAMED$(installed_engine)" ] || STATE=absent
        echo "$STATE"
        return
    fi
    if [ "$STATE" = down ]; then
        kind=$(installed_engine)
        explain_absent "$kind"
        [ -n "$kind" ] || install_engine
        [ "$STATE" != down ] || start_engine
        look
    fi
    case $STATE in
        up)
            say "$HOST answers"
            warn_of_plain_tcp
            ;;
        denied) explain_denied ;;
        down) die "still no engine answers on any known socket" ;;
    esac
}

main "$@"
