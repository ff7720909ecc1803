#!/bin/sh
# Precompiles <bits/stdc++.h>, which programs include to have everything: reading it takes the
# compiler a second each time. Runs inside an image that has g++, as root:
#
#   precompile.sh [FLAG...]
#
# FLAGs are those of the compile command (default: of the built-in language entry). g++ takes the
# result, 114 MB, when it is called with the same ones and the header is the first thing of a
# program, and else reads the header itself. Programs come out the same, byte for byte, and so does
# what g++ says, but for one line: a list "In file included from" then ends with the header and not
# with the program. Status 0 only when g++ does take it.
set -eu

[ $# -gt 0 ] || set -- -std=c++17 -O2

header=$(echo '#include <bits/stdc++.h>' | g++ "$@" -x c++ -M - | grep -oE '/[^ ]+/bits/stdc\+\+\.h' | head -n 1)
mkdir -p "$header.gch"
made=$header.gch/$(echo "$*" | tr -cd '[:alnum:]+')
g++ "$@" -x c++-header "$header" -o "$made"

# -H lists what is read; a precompiled file with "!" before its name.
if echo '#include <bits/stdc++.h>' | g++ "$@" -x c++ -H -fsyntax-only - 2>&1 | grep -qxF "! $made"; then
    exit 0
fi
echo "precompile.sh: g++ does not take $made" >&2
rm -rf "$header.gch"
exit 1
