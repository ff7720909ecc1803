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

case $(bash "$HERE/engine.sh" --state) in
    denied)
        if command -v sudo >/dev/null 2>&1 && getent group docker >/dev/null; then
            exec sudo -E -u "$(id -un)" -g docker env "PATH=$PATH" "HOME=$HOME" "$@"
        fi
        ;;
esac
exec "$@"
