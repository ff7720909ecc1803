#!/usr/bin/env bash
# Installs the Debian packages that a group of tasks needs and that are missing, and nothing else.
#
#   packages.sh GROUP...        groups: build test sdk lint engine ping image
#   packages.sh --check GROUP   installs nothing; status 1 and the names when something is missing
#   packages.sh --line GROUP... as the first; but where only root can install, the line for root names
#                               the engine's packages too, if no engine is here: one line for all
#
# A need is met when the thing itself is there (a command, a library known to pkg-config), wherever
# it came from: a compiler or Node of the user's own is as good as Debian's package.
set -uo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# KIND:WHAT:PACKAGE, one a line. Kinds: cmd = command on PATH, pc = pkg-config module,
# clib = library that gcc finds, lua = module that lua5.4 loads, pkg = installed package.
needs_of() {
    case $1 in
        build)
            cat <<'LIST'
cmd:gcc:gcc
cmd:make:make
cmd:pkg-config:pkg-config
cmd:lua5.4:lua5.4
clib:libc.a:libc6-dev
pc:lua5.4:liblua5.4-dev
pc:libcurl:libcurl4-openssl-dev
pc:sqlite3:libsqlite3-dev
pc:libcjson:libcjson-dev
pc:libmicrohttpd:libmicrohttpd-dev
pc:libcrypto:libssl-dev
LIST
            ;;
        test)
            cat <<'LIST'
pc:cmocka:libcmocka-dev
lua:busted:lua-busted
lua:socket.unix:lua-socket
cmd:sqlite3:sqlite3
cmd:openssl:openssl
LIST
            ;;
        sdk)
            cat <<'LIST'
cmd:node:nodejs
cmd:npm:npm
LIST
            ;;
        lint)
            cat <<'LIST'
cmd:luacheck:lua-check
cmd:cppcheck:cppcheck
cmd:clang-tidy:clang-tidy
cmd:shellcheck:shellcheck
LIST
            ;;
        engine)
            cat <<'LIST'
cmd:dockerd:docker.io
cmd:iptables:iptables
LIST
            ;;
        ping) echo cmd:curl:curl ;;
        image)
            cat <<'LIST'
cmd:debootstrap:debootstrap
pkg:debian-archive-keyring:debian-archive-keyring
LIST
            ;;
        *)
            echo "packages.sh: unknown group \"$1\" (build, test, sdk, lint, engine, ping, image)" >&2
            return 1
            ;;
    esac
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

is_met() {
    local kind=$1 what=$2 package=$3
    case $kind in
        cmd) command -v "$what" ;;
        pc) pkg-config --exists "$what" || installed "$package" ;;
        clib) [ -e "$(gcc -print-file-name="$what")" ] ;;
        lua) lua5.4 -e "require '$what'" ;;
        pkg) installed "$package" ;;
    esac >/dev/null 2>&1
}

missing_of() {
    local list kind what package
    list=$(needs_of "$1") || return 1
    while IFS=: read -r kind what package; do
        is_met "$kind" "$what" "$package" || echo "$package"
    done <<<"$list"
}

# Root's own commands live in sbin, which a plain user's PATH lacks.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

can_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1; }

show_line() {
    echo "    apt-get update && apt-get install -y --no-install-recommends $*" >&2
}

# $1: yes when the engine's packages belong in the line; the packages.
leave_it_to_root() {
    local with_engine=$1 engine=()
    shift
    echo "Missing packages: $*"
    if [ "$with_engine" = yes ] && [ "$(bash "$HERE/engine.sh" --state 2>/dev/null)" = absent ]; then
        mapfile -t engine < <(missing_of engine)
        echo "No Docker engine is here either; the line below installs one."
    fi
    echo "Not root, and no sudo here. Run this line as root, then try again:" >&2
    show_line "$@" "${engine[@]}"
}

install_packages() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    # A source that fails in the update (a third party's, say) is no reason to stop: what matters is
    # whether these packages can be had. --no-remove: nothing of the user's has to make way.
    local log
    log=$(mktemp)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >"$log" 2>&1 ||
        echo "apt-get update had trouble; going on with the package lists that are here" >&2
    if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove \
        --no-install-recommends "$@" </dev/null >>"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "The installation failed; its last lines stand above. By hand, as root:" >&2
    show_line "$@"
    return 1
}

main() {
    local check=no line=no group missing=() found
    case ${1:-} in
        --check) check=yes; shift ;;
        --line) line=yes; shift ;;
    esac
    [ $# -gt 0 ] || { echo "usage: packages.sh [--check|--line] GROUP..." >&2; return 2; }
    for group in "$@"; do
        found=$(missing_of "$group") || return 2
        [ -z "$found" ] || mapfile -t -O ${#missing[@]} missing <<<"$found"
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    if [ "$check" = yes ]; then
        printf '%s\n' "${missing[@]}"
        return 1
    fi
    if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
        echo "Missing here (Debian's names): ${missing[*]}" >&2
        echo "This is no Debian: install them with your own package manager, then try again." >&2
        return 1
    fi
    if ! can_be_root; then
        leave_it_to_root $line "${missing[@]}"
        return 1
    fi
    echo "Missing packages, to be installed now: ${missing[*]}"
    install_packages "${missing[@]}" || return 1
    echo "Installed."

    for group in "$@"; do
        found=$(missing_of "$group")
        [ -z "$found" ] || { echo "Still missing after the installation:" "$found" >&2; return 1; }
    done
}

main "$@"
