#!/usr/bin/env bash
# The layer rule: who may include what in src/, and what no file there may call. Prints each breach
# as FILE: what; status 1 when there is one.
#
#   tests/layers.sh [ROOT]
set -uo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit 1

BREACHES=0
breach() {
    echo "$1: $2"
    BREACHES=$((BREACHES + 1))
}

# Comments may name anything; only code counts.
code_of() { gcc -fpreprocessed -dD -E -P "$1" 2>/dev/null; }

# Include targets with their bracket or quote: <lua.h  "buf.h
includes_of() { sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*([<"][^>"]+)[>"].*/\1/p' "$1"; }

knows_lua() {
    case $1 in
        src/lua_*.[ch] | src/task.[ch] | src/vm.[ch] | src/main.c) return 0 ;;
    esac
    return 1
}

# One library, the files that may include it.
check_library() {
    local file=$1 include=$2
    case $include in
        '<lua.h' | '<lauxlib.h' | '<lualib.h' | '<luaconf.h' | '<lua5.4/'*)
            knows_lua "$file" || breach "$file" "includes ${include#<}; only lua_*.c, task.c, vm.c and main.c may" ;;
        '<curl/'*)
            [ "$file" = src/http.c ] || breach "$file" "includes ${include#<}; only http.c may" ;;
        '<sqlite3'*)
            case $file in
                src/history.c | src/history_schema.c) ;;
                *) breach "$file" "includes ${include#<}; only history.c and history_schema.c may" ;;
            esac
            ;;
        '<microhttpd.h'*)
            case $file in
                src/httpd.c | src/httpd_*.[ch]) ;;
                *) breach "$file" "includes ${include#<}; only httpd.c and httpd_*.c may" ;;
            esac
            ;;
        '<openssl/'*)
            [ "$file" = src/crypto.c ] || breach "$file" "includes ${include#<}; only crypto.c may" ;;
        '<cjson/'* | '<cJSON'*)
            [ "$file" = src/json.c ] || breach "$file" "includes ${include#<}; only json.c may" ;;
    esac
}

# Headers of our own: the core below Lua stays free of it, and the agent and the core share one file.
check_own() {
    local file=$1 name=${2#\"}
    case $file in
        src/agent/*)
            [ -e "src/agent/${name#agent/}" ] || breach "$file" "includes $name, which is not the agent's" ;;
        *)
            case $name in
                agent/wire.h) ;;
                agent/*) breach "$file" "includes $name; of the agent only wire.h is shared" ;;
                *)
                    if knows_lua "src/$name" && ! knows_lua "$file"; then
                        breach "$file" "includes $name, which belongs to Lua's side"
                    fi
                    ;;
            esac
            ;;
    esac
}

# The agent is static and lives in images without any library: libc and the kernel only.
check_agent_system() {
    local file=$1 include=$2
    case $include in
        '<sys/'* | '<linux/'* | '<arpa/'* | '<netinet/'* | '<asm/'*) return ;;
    esac
    case ${include#<} in
        */* | lua*.h | sqlite3.h | pthread.h)
            breach "$file" "includes ${include#<}; the agent has libc and nothing else" ;;
    esac
}

check_calls() {
    local file=$1 found
    found=$(code_of "$file" | grep -oE '(^|[^_[:alnum:]])(system|popen)[[:space:]]*\(' | head -n 1)
    [ -z "$found" ] || breach "$file" "calls ${found//[^a-z]/}: no shell is ever started"
    found=$(code_of "$file" | grep -oE '"[^"]*(sh -c|/bin/(ba)?sh)[^"]*"|"(ba)?sh"' | head -n 1)
    [ -z "$found" ] || breach "$file" "names a shell ($found): no shell is ever started"
}

for file in src/*.[ch] src/agent/*.[ch]; do
    [ -e "$file" ] || continue
    while IFS= read -r include; do
        case $include in
            '"'*) check_own "$file" "$include" ;;
            *)
                check_library "$file" "$include"
                case $file in src/agent/*) check_agent_system "$file" "$include" ;; esac
                ;;
        esac
    done < <(includes_of "$file")
    check_calls "$file"
done

[ "$BREACHES" -eq 0 ]
