-- SandboxRunner's settings. Every line below states a built-in default: delete
-- what you do not change, or edit it. Check the file with
--
--     sandbox-runner --config init.lua --check-config
--
-- Sizes are written as Docker writes them ("256m", "1g"; a plain number is
-- bytes), times carry their unit in the name. Zero and "unlimited" are refused.
-- A misspelt name, a wrong type or an impossible value stops the start with the
-- line and what would be right. This file is plain Lua, but os, io and require
-- are not there; print writes to stderr. Nobody but its owner may write to it.

-- The run stage: limits of one program

-- Time limit of a run that names none, in seconds (1 to 3600).
limits.timeout_seconds = 10
-- Longest time limit a client may ask for, in seconds (1 to 3600).
limits.max_timeout_seconds = 30
-- Memory of a sandbox, swap included (16m to 64g).
limits.memory = "256m"
-- CPU time per second of wall time (0.05 to 64).
limits.cpus = 0.5
-- Processes and threads in a sandbox (16 to 4096).
limits.pids = 128
-- Size of /scratch, the working folder (1m to 16g). It, /tmp and /dev/shm live
-- in memory: their sum must stay below limits.memory.
limits.scratch = "64m"
-- Size of /tmp (1m to 16g); nothing in it can be executed.
limits.tmp = "64m"
-- Size of /dev/shm (1m to 16g).
limits.shm = "16m"
-- Files and folders in each of /scratch, /tmp and /dev/shm (64 to 1000000).
limits.files = 4096
-- Files that a process may hold open (64 to 65536).
limits.open_files = 1024
-- Largest file (1m to 16g). Keep it above scratch and tmp, or a full disk ends
-- programs by a signal in place of an error.
limits.file_size = "256m"
-- Longest source, in bytes (1 to 1048576).
limits.code_bytes = 51200
-- Most bytes returned of stdout, and of stderr (1 to 262144). The rest is
-- counted and dropped. The ceiling keeps an answer within a client's line.
limits.output_bytes = 102400
-- Runs at the same time (1 to 256), more wait for their turn; not set: 16 for
-- each CPU of this machine.
limits.concurrency = nil
-- Runs that may wait (0 to 10000); more are refused as busy.
limits.queue = 256

-- The compile stage: limits of the compiler
-- Compilers need more than the programs they make: one C++ file with <regex>
-- takes 400 MB. A client's timeout_seconds does not apply here.

-- Time limit of the compiler, in seconds (1 to 600).
compile.timeout_seconds = 30
-- Memory (16m to 64g).
compile.memory = "1g"
-- CPU time per second of wall time (0.05 to 64).
compile.cpus = 1
-- Processes and threads (16 to 4096).
compile.pids = 128
-- Size of /scratch (1m to 16g).
compile.scratch = "128m"
-- Size of /tmp, where compilers keep their intermediate files (1m to 16g).
compile.tmp = "256m"
-- Size of /dev/shm (1m to 16g).
compile.shm = "16m"
-- Files and folders in each of /scratch, /tmp and /dev/shm (64 to 1000000).
compile.files = 4096
-- Files that a process may hold open (64 to 65536).
compile.open_files = 1024
-- Largest file (1m to 16g); above scratch and tmp, see limits.file_size.
compile.file_size = "512m"
-- Largest program that the compiler may hand over (1k to 256m). It is kept in
-- the server's memory meanwhile.
compile.artifact = "32m"

-- Memory for compiled programs: the same source again skips the compiler (0 to
-- 16g; 0 = none).
compile.cache = "64m"

-- Sandboxes started ahead
-- Each is used once and thrown away, like any other; a run just does not have to
-- wait for its start. A waiting one costs about 10 MB of memory and no CPU.

-- How many per language and stage (0 to 64); 0 = none, every run starts its own.
pool.size = 1
-- How many while many runs come at once (size to 256).
pool.max = 4
-- After so many seconds without a run it is `size` again (1 to 86400).
pool.idle_seconds = 300
-- When: "first-use" (after the first run of a language) or "start" (with the
-- server, right after its first answer).
pool.warm = "first-use"

-- The record of runs

-- Keep a record at all.
history.enabled = true
-- The SQLite file. A relative path is taken from the state folder:
-- $XDG_STATE_HOME/sandbox-runner, else ~/.local/state/sandbox-runner.
history.file = "sandbox_history.db"
-- Rows of get_execution_history when no limit is given (1 to 1000).
history.default_limit = 20
-- Most rows that a client may ask for (1 to 1000).
history.max_limit = 1000
-- Characters of the code that a row keeps (16 to 10000); times max_limit it
-- must stay within 750000, so that an answer fits a client's line.
history.preview_characters = 500
-- Rows kept (1 to 100000000); the oldest go first.
history.max_rows = 100000

-- Where the container engine is

-- Not set, the engine is found by DOCKER_HOST, the current Docker context and
-- the usual sockets. Else unix:///path or tcp://host:port.
engine.address = nil
-- OCI runtime, for example "runsc" (gVisor); not set: the engine's own default.
engine.runtime = nil
-- Folder with ca.pem, cert.pem and key.pem for a tcp address; not set: no TLS.
engine.tls_dir = nil
-- Accept a tcp address without TLS. Whoever can reach such an engine owns the
-- machine it runs on.
engine.allow_plain_tcp = false

-- The log on stderr

-- How much: "error", "warning", "info" or "debug".
log.level = "info"

-- Languages
-- What is named here is what there is; with no entry at all, python and cpp as
-- below are there. Fields:
--   description  one sentence for the model
--   aliases      other names (optional); case never matters
--   images       images in order of preference; the first present one is used
--   file         name of the source file in /scratch
--   compile      the command that builds the program (optional), and
--   artifact     the file in /scratch that it writes
--   run          the command that runs it; a list of words, no shell
--   env          environment variables { NAME = "value" } (optional)
--   prestart     true: the interpreter may be started before the code is there;
--                right for those that read their script from the path in `run`
--   limits, compile_limits
--                the entry's own limits: timeout_seconds, memory, cpus, pids,
--                scratch, tmp, shm, files, open_files, file_size (optional)

language "python" {
  description = "CPython 3 with its standard library (3.12 in the official image)",
  aliases = { "py", "python3", "py3" },
  images = { "python:3.12-slim", "sandbox-runner/python:local" },
  file = "snippet.py",
  run = { "python", "/scratch/snippet.py" },
  env = { PYTHONUNBUFFERED = "1" }, -- what was printed is there when the time is up
  prestart = true,
}

language "cpp" {
  description = "C++17, compiled by GCC 14 with -O2",
  aliases = { "c++", "cxx", "cc", "cplusplus" },
  images = { "gcc:14", "sandbox-runner/gcc:local" },
  file = "snippet.cpp",
  compile = { "g++", "-std=c++17", "-O2", "/scratch/snippet.cpp", "-o", "/scratch/a.out" },
  artifact = "a.out",
  run = { "/scratch/a.out" },
}

-- Both of these are in the two images above already:
--
-- language "bash" {
--   description = "Bash with the usual Debian tools",
--   aliases = { "sh" },
--   images = { "python:3.12-slim", "sandbox-runner/python:local" },
--   file = "snippet.sh",
--   run = { "bash", "/scratch/snippet.sh" },
-- }
--
-- language "perl" {
--   description = "Perl 5",
--   aliases = { "pl" },
--   images = { "gcc:14", "sandbox-runner/gcc:local" },
--   file = "snippet.pl",
--   run = { "perl", "/scratch/snippet.pl" },
--   limits = { memory = "512m" },
-- }

-- Policy
-- A function that sees each checked request before it runs: language (the
-- entry's name), code and timeout_seconds. It returns nothing to allow it,
-- nil or false and a reason to refuse it, or a changed request, which is checked
-- again. When it fails or takes longer than 0.2 s the run is refused.
--
-- policy = function(request)
--   if request.language == "cpp" and #request.code > 20000 then
--     return nil, "C++ sources over 20000 bytes are not accepted here"
--   end
--   if request.language == "python" and request.timeout_seconds > 20 then
--     request.timeout_seconds = 20
--     return request
--   end
-- end
policy = nil
