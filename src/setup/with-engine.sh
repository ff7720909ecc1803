#!/usr/bin/env bash
# Runs a command that talks to the engine, with the right to do so.
#
#   with-engine.sh COMMAND [ARGS...]
#
# After an engine was installed, a user with sudo is not in the group `docker` yet (and joining it is
# that user's choice, as it is as good as being root). So this one command gets that group, and
# everything it writes still belongs to the user.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Sets KEPT to the variables that the command may need: sudo hands on next to none by itself.
find_kept() {
    local name
    KEPT=()
    for name in $(compgen -e); do
        case $name in
            HOME | PATH | USER | LOGNAME | TMPDIR | LANG | LC_* | SR_* | DOCKER_* | XDG_STATE_HOME | \
                XDG_RUNTIME_DIR | MCP_SDK_DIR | ASAN_OPTIONS | UBSAN_OPTIONS | CI | *_proxy)
                KEPT+=("$name=${!name}") ;;
        esac
    done
}

# By way of root and setpriv, not `sudo -g docker`: the usual rule `(ALL) NOPASSWD: ALL` lets a user
# become another one, but not take a group.
run_with_group() {
    local gid groups
    gid=$(getent group docker | cut -d: -f3)
    groups=$(id -G | tr ' ' ,),$gid
    find_kept
    exec sudo env "${KEPT[@]}" setpriv "--reuid=$(id -u)" "--regid=$(id -g)" "--groups=$groups" -- "$@"
}

case $(bash "$HERE/engine.sh" --state) in
    denied)
        if command -v sudo >/dev/null 2>&1 && getent group docker >/dev/null; then
            run_with_group "$@"
        fi
        ;;
esac
exec "$@"
