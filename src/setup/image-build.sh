#!/usr/bin/env bash
# Builds the root filesystem of a language image from Debian packages, for machines that reach a
# Debian mirror but no image registry.
#
#   image-build.sh python|gcc OUT.tar      ("-" for standard output)
#
# OUT.tar is a plain root filesystem for the engine's import (POST /images/create?fromSrc=-). It is
# Debian trixie: Python 3.13 as `python3` and `python`, or g++ 14 with <bits/stdc++.h> precompiled.
# It is not the official image, so it must be imported under a name of its own. Whoever changes what
# is in it counts up RECIPES in get_images.lua.
#
# SR_DEBIAN_MIRROR   mirror to use (default http://deb.debian.org/debian); http_proxy is honoured
# TMPDIR             where the tree is put together, 1 GB at most (default /var/tmp)
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MIRROR=${SR_DEBIAN_MIRROR:-http://deb.debian.org/debian}
SUITE=trixie
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { echo "image $NAME: $*" >&2; }
die() { say "$*"; exit 1; }

usage() { echo "usage: image-build.sh python|gcc OUT.tar" >&2; exit 2; }

[ $# -eq 2 ] || usage
NAME=$1
OUT=$2
case $NAME in
    python) PACKAGES=python3 ;;
    gcc) PACKAGES=g++-14,g++,gcc ;;
    *) usage ;;
esac

# The program as the one who reads a message can call it: in the source tree, or installed.
program() {
    local path
    for path in "$HERE/../../build/sandbox-runner" "$HERE/../../../bin/sandbox-runner"; do
        [ ! -x "$path" ] || { echo "$(cd "$(dirname "$path")" && pwd)/sandbox-runner"; return; }
    done
    echo sandbox-runner
}

# debootstrap makes device nodes and chroots: there is no way around root.
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
        die "building an image needs root (debootstrap), and there is no sudo here." \
            "As root: $(program) --get-images"
    # The file is opened here and not by root: it stays the caller's, and a kernel that keeps root
    # from opening others' files in /tmp (fs.protected_regular) has nothing to say.
    [ "$OUT" != - ] || OUT=/dev/stdout
    # shellcheck disable=SC2024
    sudo env "TMPDIR=${TMPDIR:-/var/tmp}" "SR_DEBIAN_MIRROR=$MIRROR" "http_proxy=${http_proxy:-}" \
        bash "$HERE/image-build.sh" "$NAME" - >"$OUT" && exit
    [ "$OUT" = /dev/stdout ] || rm -f "$OUT"
    exit 1
fi

bash "$HERE/packages.sh" image >&2 ||
    die "debootstrap is needed to build it and is not here"

WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/sandbox-runner-image.XXXXXX")
ROOT=$WORK/root
DONE=no
CHILD=

cleanup() {
    if [ -n "$CHILD" ]; then
        kill -KILL -- "-$CHILD" 2>/dev/null
        wait "$CHILD" 2>/dev/null
    fi || true
    # A debootstrap that was interrupted leaves these mounted; removing the tree through them would
    # reach into the host's /proc and /sys.
    local point
    for point in proc sys dev/pts dev/shm dev; do
        if mountpoint -q "$ROOT/$point" 2>/dev/null; then
            umount -l "$ROOT/$point" || return
        fi
    done
    rm -rf --one-file-system "$WORK"
    [ "$DONE" = yes ] || [ "$OUT" = - ] || rm -f "$OUT"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

bootstrap() {
    say "putting together Debian $SUITE with ${PACKAGES//,/ } from $MIRROR"
    # In a group of its own and waited for, so that a signal ends it and all that it started at once.
    # Only the steps are shown, not each of the hundred packages; the log is kept for a failure.
    setsid debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$ROOT" "$MIRROR" \
        >"$WORK/log" 2>&1 </dev/null &
    CHILD=$!
    if ! wait "$CHILD"; then
        cat "$WORK/log" "$ROOT/debootstrap/debootstrap.log" 2>/dev/null | tail -n 20 >&2
        die "debootstrap failed: is $MIRROR in reach? (lines above; SR_DEBIAN_MIRROR names another mirror)"
    fi
    CHILD=
}

# Everything a program at run time has no use for, and everything that tells about this machine.
# The .pyc files stay: the sandbox's root is read-only, so Python could never write them again.
slim() {
    say "removing caches and documentation"
    rm -rf "$ROOT"/var/cache/apt/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* \
        "$ROOT"/var/cache/debconf/*-old "$ROOT"/var/lib/dpkg/*-old \
        "$ROOT"/usr/share/doc/* "$ROOT"/usr/share/man/* "$ROOT"/usr/share/info/* \
        "$ROOT"/usr/share/locale/* "$ROOT"/usr/share/lintian "$ROOT"/tmp/* \
        "$ROOT"/etc/resolv.conf "$ROOT"/etc/hostname "$ROOT"/etc/machine-id
    printf 'deb http://deb.debian.org/debian %s main\n' "$SUITE" >"$ROOT/etc/apt/sources.list"
}

# The official images call their programs by these names.
name_commands() {
    if [ "$NAME" = python ]; then
        ln -sf /usr/bin/python3 "$ROOT/usr/local/bin/python"
        ln -sf /usr/bin/python3 "$ROOT/usr/local/bin/python3"
    else
        local tool
        for tool in gcc g++; do
            ln -sf "/usr/bin/$tool-14" "$ROOT/usr/local/bin/$tool"
        done
        ln -sf /usr/bin/g++-14 "$ROOT/usr/local/bin/c++"
    fi
}

# Without it everything works, only slower.
precompile() {
    [ "$NAME" = gcc ] || return 0
    say "precompiling <bits/stdc++.h>"
    chroot "$ROOT" sh -s <"$HERE/precompile.sh" >&2 || say "going on without it"
}

pack() {
    say "writing the archive"
    # The engine makes its own /dev, /proc and /sys; device nodes would fail in a rootless one.
    tar -C "$ROOT" --numeric-owner --sort=name --one-file-system \
        --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' --exclude='./run/*' \
        -cf "$OUT" .
}

check() {
    local tool
    case $NAME in
        python) tool=usr/local/bin/python ;;
        gcc) tool=usr/local/bin/g++ ;;
    esac
    chroot "$ROOT" "/$tool" --version >"$WORK/version" 2>&1 ||
        die "the finished tree cannot run /$tool: $(head -n 1 "$WORK/version")"
    head -n 1 "$WORK/version"
}

START=$SECONDS
bootstrap
name_commands
VERSION=$(check)
precompile
slim
pack || die "cannot write $OUT (is there room? about 450 MB are needed)"
DONE=yes
say "done in $((SECONDS - START)) s: $VERSION"
