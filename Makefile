# SandboxRunner. `make help` lists the targets.
#
# Two flavours, each in a folder of its own: release in build/, and FLAVOUR=asan (AddressSanitizer and
# UBSan, with asserts) in build/asan/. The usual variables count: CC CFLAGS LDFLAGS PREFIX DESTDIR.

FLAVOUR ?= release
PREFIX  ?= /usr/local
CFLAGS  ?= -O2 -g

# It is compiled in, and the program may be started from anywhere.
ifneq ($(filter-out /%,$(firstword $(PREFIX))),)
$(error PREFIX must be an absolute path, like $(CURDIR)/$(PREFIX); it is "$(PREFIX)")
endif

# The interpreter's own search path, for `require "sandbox_runner.core"` from stock lua5.4.
LUA_LIBDIR   ?= $(PREFIX)/lib/lua/5.4
LUA_SHAREDIR ?= $(PREFIX)/share/lua/5.4

# What the tests drive the server with: the official MCP clients (two generations, and the one for
# tasks), conformance runner and Inspector, and the Node that these need, which most systems lack.
node_machine  := $(subst aarch64,arm64,$(subst x86_64,x64,$(shell uname -m)))
node_packages := node-linux-$(node_machine)@24.22.3 @modelcontextprotocol/client@2.4.0 \
                 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/conformance@0.2.0-alpha.12 \
                 @modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/ext-tasks@0.2.2

ifeq ($(origin CC),default)
CC := gcc
endif

# A checkout that belongs to another user (sudo make install) still knows its version.
VERSION := $(shell git -c safe.directory='$(CURDIR)' describe --tags --dirty 2>/dev/null || echo 0.1.0-dev)

ifeq ($(FLAVOUR),release)
BUILD := build
flavour_cflags  := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
flavour_ldflags :=
else ifeq ($(FLAVOUR),asan)
BUILD := build/asan
flavour_cflags  := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                   -fno-omit-frame-pointer
flavour_ldflags := -fsanitize=address,undefined
else
$(error FLAVOUR is release or asan, not "$(FLAVOUR)")
endif

warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
            -Wformat=2 -Wvla -Werror=implicit-function-declaration
ifeq ($(CI),true)
warnings += -Werror
endif

packages := libcurl sqlite3 libcjson libmicrohttpd libcrypto
ifeq ($(shell pkg-config --exists lua5.4 $(packages) 2>/dev/null && echo yes),yes)
package_cflags := $(shell pkg-config --cflags lua5.4 $(packages))
package_libs   := $(shell pkg-config --libs $(packages)) -lm
lua_libs       := $(shell pkg-config --libs lua5.4)
endif

base_cflags := -std=c11 -D_GNU_SOURCE $(warnings) -Isrc
# One set of objects serves the program and the Lua module, hence -fPIC.
core_cflags  = $(base_cflags) -fPIC $(package_cflags) $(CFLAGS) $(flavour_cflags)
core_ldflags = -Wl,-z,relro,-z,now -Wl,--as-needed $(flavour_ldflags) $(LDFLAGS)
# The agent runs in images that may hold no library at all, hence without a sanitizer in any flavour.
agent_cflags  = $(base_cflags) -fPIE -ffunction-sections -fdata-sections $(CFLAGS) \
                -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
agent_ldflags = -static-pie -Wl,-z,relro,-z,now -Wl,--gc-sections -s
# A word of a shell command, whatever is in it.
quoted = '$(subst ','\'',$(1))'
# Where the program looks for its parts, and what it calls itself: only in files that ask for it.
place_cflags  = $(call quoted,-DSR_PREFIX="$(PREFIX)") $(call quoted,-DSR_VERSION="$(VERSION)")

PROGRAM := $(BUILD)/sandbox-runner
AGENT   := $(BUILD)/sandbox-agent
MODULE  := $(BUILD)/sandbox_runner/core.so

# In the asan flavour a second agent, which tests/c drives as an ordinary process. It needs the
# sanitizers' libraries, so no sandbox could run it.
ifeq ($(FLAVOUR),asan)
TESTED_AGENT := $(BUILD)/sandbox-agent-asan
else
TESTED_AGENT := $(AGENT)
endif

core_objects := $(patsubst src/%.c,$(BUILD)/obj/%.o,\
                  $(filter-out src/main.c,$(wildcard src/*.c)) src/agent/wire.c)
main_object  := $(BUILD)/obj/main.o
agent_objects := $(patsubst src/agent/%.c,$(BUILD)/agent/%.o,$(wildcard src/agent/*.c))
tested_agent_objects := $(patsubst src/agent/%.c,$(BUILD)/agent-asan/%.o,$(wildcard src/agent/*.c))
placed_objects := $(patsubst src/%.c,$(BUILD)/obj/%.o,\
                    $(shell grep -lE 'SR_(PREFIX|VERSION)' src/*.c 2>/dev/null))

test_helpers  := $(patsubst tests/c/%.c,$(BUILD)/tests/%.o,\
                   $(filter-out tests/c/test_%.c,$(wildcard tests/c/*.c)))
test_programs := $(patsubst tests/c/%.c,$(BUILD)/tests/%,$(wildcard tests/c/test_*.c))

lua_files := $(shell find lua -name '*.lua' 2>/dev/null)
shell_files := .ci/run $(wildcard src/setup/*.sh tests/*.sh tests/*/*.sh)

# What the tests need to know about the flavour under test.
export SR_FLAVOUR := $(FLAVOUR)
export SR_BUILD   := $(CURDIR)/$(BUILD)
export SR_PROGRAM := $(CURDIR)/$(PROGRAM)
export SR_AGENT   := $(CURDIR)/$(TESTED_AGENT)
# The module is for an interpreter that knows no sanitizer, so it is always the release one.
export SR_MODULE_DIR := $(CURDIR)/build
export MCP_SDK_DIR := $(CURDIR)/build/node
export ASAN_OPTIONS ?= detect_leaks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS ?= print_stacktrace=1

# One short line a step; V=1 shows the commands.
quiet = $(if $(V),,@echo '  $(1) $@';)

setup := bash src/setup
# Targets that install or start something go on in a second make, which sees the libraries that the
# first one did not find, and builds in parallel unless the caller has a say in that already.
again = $(MAKE) --no-print-directory $(if $(findstring j,$(filter -j% --jobserver%,$(MAKEFLAGS))),,-j$(shell nproc))

.PHONY: all setup engine images run test test-unit test-c test-spec test-e2e tests sdk asan lint \
        lint-lua lint-c lint-tidy lint-layers lint-shell bench install uninstall clean help FORCE
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

## all: build the program, the agent and the Lua module
all: $(PROGRAM) $(AGENT) $(if $(filter release,$(FLAVOUR)),$(MODULE))

## setup: install the packages that building needs and that are missing
setup:
	@$(setup)/packages.sh build

## engine: find the Docker engine; start it, or install it, where there is none
engine:
	@$(setup)/engine.sh

## images: get the language images that are missing
images: all
	@$(setup)/engine.sh
	@$(setup)/with-engine.sh $(PROGRAM) --get-images

## run: set up everything and show a session against the real server
run: run-setup
	@+$(again) all
	@+$(MAKE) --no-print-directory images
	@$(setup)/with-engine.sh $(PROGRAM) --script tests/e2e/demo.lua

## test: all tests, with a set-up of their own; last line "N passed, N failed"
test: sdk-setup
	@+$(again) all tests sdk
	@+$(MAKE) --no-print-directory images
	@$(setup)/with-engine.sh bash tests/run.sh e2e/1 conformance sdk + e2e/2 + c spec setup run

## test-unit: the tests that need no Docker
test-unit: test-setup
	@+$(again) all tests
	@bash tests/run.sh c spec setup run

## test-c, test-spec, test-e2e: one part alone
test-c test-spec: test-setup
	@+$(again) all tests
	@bash tests/run.sh $(@:test-%=%)

test-e2e: sdk-setup
	@+$(again) all tests sdk
	@+$(MAKE) --no-print-directory images
	@$(setup)/with-engine.sh bash tests/run.sh e2e conformance sdk

## asan: all tests under AddressSanitizer and UBSan
asan:
	@+$(MAKE) --no-print-directory FLAVOUR=asan test

## bench: the figures of the README, measured here
bench: run-setup
	@+$(again) all
	@+$(MAKE) --no-print-directory images
	@$(setup)/with-engine.sh $(PROGRAM) --script tests/bench/run.lua

# Each asks once for all that it needs.
.PHONY: run-setup test-setup sdk-setup
run-setup:
	@$(setup)/packages.sh --line build
test-setup:
	@$(setup)/packages.sh build test
sdk-setup:
	@$(setup)/packages.sh --line build test sdk

# What the tests need beyond `all`.
tests: $(test_programs) $(TESTED_AGENT)
sdk: build/node/.installed
ifeq ($(FLAVOUR),asan)
tests: build/sandbox_runner/core.so
endif

# --- building ---

# Says what is missing instead of letting the compiler fail over a header.
$(BUILD)/.ready:
	@missing=$$($(setup)/packages.sh --check build | tr '\n' ' '); \
	if [ -n "$$missing" ]; then \
	  echo "missing: $$missing- run \`make setup\` first" >&2; exit 1; \
	fi
	@mkdir -p $(BUILD) && touch $@

# Written anew only when its text changes: a new compiler, flag, version or prefix rebuilds what it
# concerns and nothing else.
define write_if_changed
@mkdir -p $(@D)
@printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(1))' >$@
endef

$(BUILD)/.flags: FORCE
	$(call write_if_changed,$(CC) $(core_cflags) $(core_ldflags) $(agent_cflags))
$(BUILD)/.place: FORCE
	$(call write_if_changed,$(place_cflags))

# private: the stamps these depend on must not see the addition.
$(placed_objects): private core_cflags += $(place_cflags)
$(placed_objects): $(BUILD)/.place

$(BUILD)/obj/%.o: src/%.c $(BUILD)/.flags | $(BUILD)/.ready
	@mkdir -p $(@D)
	$(call quiet,cc  )$(CC) $(core_cflags) -MMD -MP -c -o $@ $<

$(BUILD)/agent/%.o: src/agent/%.c $(BUILD)/.flags | $(BUILD)/.ready
	@mkdir -p $(@D)
	$(call quiet,cc  )$(CC) $(agent_cflags) -MMD -MP -c -o $@ $<

$(BUILD)/agent-asan/%.o: src/agent/%.c $(BUILD)/.flags | $(BUILD)/.ready
	@mkdir -p $(@D)
	$(call quiet,cc  )$(CC) $(base_cflags) -fPIE $(CFLAGS) $(flavour_cflags) -MMD -MP -c -o $@ $<

$(BUILD)/tests/%.o: tests/c/%.c $(BUILD)/.flags | $(BUILD)/.ready
	@mkdir -p $(@D)
	$(call quiet,cc  )$(CC) $(core_cflags) -Itests/c -MMD -MP -c -o $@ $<

$(PROGRAM): $(main_object) $(core_objects)
	$(call quiet,link)$(CC) -pie $(core_ldflags) -o $@ $^ $(lua_libs) $(package_libs)

$(AGENT): $(agent_objects)
	$(call quiet,link)$(CC) $(agent_ldflags) -o $@ $^

$(BUILD)/sandbox-agent-asan: $(tested_agent_objects)
	$(call quiet,link)$(CC) -pie $(flavour_ldflags) -o $@ $^

# Not linked with a Lua library: the interpreter that loads it brings its own, and two copies in one
# process would not agree on each other's states.
$(MODULE): $(core_objects)
	@mkdir -p $(@D)
	@printf '{ global: luaopen_*; local: *; };\n' >$(BUILD)/module.map
	$(call quiet,link)$(CC) -shared $(core_ldflags) -Wl,--version-script=$(BUILD)/module.map -o $@ $^ $(package_libs)

ifneq ($(FLAVOUR),release)
build/sandbox_runner/core.so: FORCE
	@+$(MAKE) --no-print-directory FLAVOUR=release $@
endif

$(test_programs): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(test_helpers) $(core_objects)
	$(call quiet,link)$(CC) -pie $(core_ldflags) -o $@ $^ -lcmocka $(lua_libs) $(package_libs)

build/node/.wanted: FORCE
	$(call write_if_changed,$(node_packages))

# A failure here must not keep the other suites from running; those that need the packages report it.
build/node/.installed: build/node/.wanted
	@npm install --prefix build/node --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error \
	  $(node_packages) </dev/null && touch $@ || \
	  echo "npm could not install what the tests of MCP clients need: they will fail" >&2

.SECONDARY:
-include $(wildcard $(BUILD)/obj/*.d $(BUILD)/obj/agent/*.d $(BUILD)/agent/*.d \
  $(BUILD)/agent-asan/*.d $(BUILD)/tests/*.d)

# --- checks ---

## lint: luacheck, cppcheck, clang-tidy, the layer rule, shellcheck
lint:
	@$(setup)/packages.sh build lint || echo "lint: going on with the tools that are here"
	@+$(MAKE) --no-print-directory -k lint-lua lint-c lint-tidy lint-layers lint-shell

# A check whose tool is not here is said to be skipped; with CI=true it fails.
tool_or_skip = command -v $(1) >/dev/null 2>&1 || { \
  if [ "$(CI)" = true ]; then echo "lint $(@:lint-%=%): failed ($(1) is not here)"; exit 1; fi; \
  echo "lint $(@:lint-%=%): skipped ($(1) is not here)"; exit 0; };
verdict = && echo "lint $(@:lint-%=%): ok" || { echo "lint $(@:lint-%=%): failed"; exit 1; }

lint-lua:
	@$(call tool_or_skip,luacheck) luacheck -q --no-color . $(verdict)
lint-c:
	@$(call tool_or_skip,cppcheck) cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
	  --suppress=missingIncludeSystem --suppress=varFuncNullUB \
	  --error-exitcode=1 -D_GNU_SOURCE -D__linux__ -Isrc src $(verdict)
# What it says on stderr counts, but for its tally of warnings in other people's headers.
lint-tidy: SHELL := bash
lint-tidy: .SHELLFLAGS := -o pipefail -c
lint-tidy:
	@$(call tool_or_skip,clang-tidy) printf '%s\n' src/*.c src/agent/*.c | \
	  xargs -P $(shell nproc) -I{} clang-tidy --quiet {} -- -std=c11 -D_GNU_SOURCE -Isrc \
	    $(package_cflags) $(place_cflags) 2>&1 | \
	  sed -E '/^[0-9]+ warnings? generated\.$$/d' $(verdict)
lint-layers:
	@bash tests/layers.sh $(verdict)
lint-shell:
	@$(call tool_or_skip,shellcheck) shellcheck $(shell_files) $(verdict)

# --- installing ---

share := $(DESTDIR)$(PREFIX)/share/sandbox-runner

## install: into PREFIX (default /usr/local), below DESTDIR
install: all
	@install -D -m 755 $(PROGRAM) $(call quoted,$(DESTDIR)$(PREFIX)/bin/sandbox-runner)
	@install -D -m 755 $(AGENT) $(call quoted,$(DESTDIR)$(PREFIX)/lib/sandbox-runner/sandbox-agent)
	@install -D -m 644 $(MODULE) $(call quoted,$(DESTDIR)$(LUA_LIBDIR)/sandbox_runner/core.so)
	@mkdir -p $(call quoted,$(share)) $(call quoted,$(DESTDIR)$(LUA_SHAREDIR))
	@share=$(call quoted,$(share)); \
	if [ -e "$$share/init.lua" ] && ! cmp -s init.lua "$$share/init.lua"; then \
	  install -m 644 init.lua "$$share/init.lua.new"; \
	  echo "$$share/init.lua differs from the new one and stays; that is beside it as init.lua.new"; \
	else \
	  install -m 644 init.lua "$$share/init.lua"; \
	fi
	@for f in $(lua_files); do install -D -m 644 "$$f" $(call quoted,$(share))/"$$f" || exit 1; done
	@install -D -m 755 -t $(call quoted,$(share)/setup) src/setup/*.sh
	@ln -sfn $(call quoted,$(PREFIX)/share/sandbox-runner/lua/sandbox_runner) \
	  $(call quoted,$(DESTDIR)$(LUA_SHAREDIR)/sandbox_runner)
	@printf '%s\n' $(call quoted,installed: $(DESTDIR)$(PREFIX)/bin/sandbox-runner) \
	  $(call quoted,next: $(PREFIX)/bin/sandbox-runner --get-images; then add it to your MCP client (README, Set up your client))

# Folders that are empty then go, too, but not those that every system has.
## uninstall: remove what install put there; an edited init.lua stays
uninstall:
	@rm -f $(call quoted,$(DESTDIR)$(PREFIX)/bin/sandbox-runner) \
	  $(call quoted,$(DESTDIR)$(LUA_SHAREDIR)/sandbox_runner)
	@rm -rf $(call quoted,$(DESTDIR)$(PREFIX)/lib/sandbox-runner) \
	  $(call quoted,$(DESTDIR)$(LUA_LIBDIR)/sandbox_runner)
	@share=$(call quoted,$(share)); \
	rm -rf "$$share/lua" "$$share/setup" "$$share/init.lua.new"; \
	if cmp -s init.lua "$$share/init.lua"; then rm -f "$$share/init.lua"; fi; \
	rmdir "$$share" 2>/dev/null || [ ! -e "$$share" ] || echo "$$share/init.lua was edited and stays"
	@prefix=$(call quoted,$(DESTDIR)$(PREFIX)); \
	for dir in $(call quoted,$(DESTDIR)$(LUA_LIBDIR)) $(call quoted,$(DESTDIR)$(LUA_SHAREDIR)); do \
	  rmdir "$$dir" "$$(dirname "$$dir")" 2>/dev/null; \
	done; \
	case $$prefix in /usr|/usr/local|/opt) ;; \
	  *) rmdir "$$prefix/bin" "$$prefix/lib" "$$prefix/share" "$$prefix" 2>/dev/null ;; \
	esac; true

## clean: remove build/
clean:
	rm -rf build

## help: this list
help:
	@sed -n 's/^## \(.*\): /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 34
	@echo 'Variables: CC CFLAGS LDFLAGS PREFIX DESTDIR, FLAVOUR=release|asan, CI=true (-Werror), V=1 (commands)'
