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
-- Runs that one client may start in a minute (1 to 100000); not set: no limit. A
-- client is whoever holds one token, or one address, or the client on stdio.
limits.runs_per_minute = nil

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

-- The HTTP server (--transport http)

-- Address to listen on. Any but a loopback one needs tokens, see token_file: who
-- can reach this server can run programs on this machine.
http.host = "127.0.0.1"
-- Port (0 to 65535); 0 = any that is free.
http.port = 8000
-- File with the tokens that clients must send, one a line as NAME:TOKEN; a
-- relative path is taken from this file's folder. Not set: none is asked for.
http.token_file = nil
-- Names by which clients may call it beside localhost, like { "runner.example" }:
-- the Host header is checked, against pages that make a name point here.
http.allowed_hosts = {}
-- Web pages that may call it beside those of this machine, by their Origin
-- header, like { "https://app.example" }.
http.allowed_origins = {}
-- Connections at the same time (16 to 10000); above, the one idle the longest goes.
http.connections = 1000
-- Largest body of a request (4k to 64m).
http.body = "4m"
-- Memory for all bodies that are being read (1m to 16g).
http.body_budget = "64m"
-- Largest head of a request (4k to 64k).
http.header = "16k"
-- Seconds after which a connection without a request is closed (1 to 86400).
http.idle_seconds = 60
-- Seconds within which a request must have arrived (1 to 3600).
http.request_seconds = 30
-- Seconds between two signs of life on a silent stream (1 to 3600).
http.keepalive_seconds = 15
-- Sessions at the same time (1 to 100000); above, the one idle the longest ends.
http.sessions = 1000
-- Seconds after which a session that nobody uses ends (1 to 604800).
http.session_idle_seconds = 1800
-- Seconds that running calls may go on when the server is told to stop (0 to 3600).
http.grace_seconds = 5

-- Long calls as tasks
-- Clients that know the tasks extension need not wait for a long run: they get a
-- handle and ask for the result later.

-- Seconds after which a call goes on as a task (0 to 60).
tasks.after_seconds = 1
-- Seconds that the result of a task is kept (1 to 86400).
tasks.keep_seconds = 300
-- Tasks kept at the same time (1 to 100000).
tasks.max = 1000

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

-- Tools, resources and prompts of your own
-- Beside the server's own. Fields of a tool (its name: letters, digits, _ and -):
--   title        name for people (optional)
--   description  what it does; models choose by it
--   input        JSON Schema of its arguments as a Lua table; none: no arguments.
--                Arguments are checked before the handler sees them, defaults
--                filled in. pattern and format are published, but not checked.
--   output       JSON Schema of its answer, a table (optional)
--   annotations  hints for hosts: readOnlyHint, destructiveHint, idempotentHint,
--                openWorldHint (optional)
--   task         "slow": may be answered as a task, "always": always (optional)
--   icons, meta  as in the protocol (optional)
--   portable     false: publish a schema that some hosts refuse all the same
--   handler      function(arguments, ctx); it returns a text; or a table, which
--                goes out as structured answer and as JSON (a list as JSON alone);
--                or, with a list as `content`, a whole result of the protocol; or
--                nil and a text that tells the model what was wrong. error() is
--                for faults of its own: the text goes to the log, not to the client.
-- What a handler can do, by ctx:
--   run(arguments)      as run_code does: its result, or nil and a text
--   history(limit), languages()    what the tools of these names list
--   json                encode, decode, array (marks a list that may be empty), null
--   base64(bytes)       the text for the data of a picture, or the blob of a resource
--   progress(done, total, message), log(level, data), sleep(milliseconds)
--   elicit(params), sample(params), roots(): asks the client; ask(requests,
--                state): several at once. With the newest protocol revision the
--                handler begins anew when the answers are there: state, answers
--   require(capability), protocol_error(code, message, data): ends the call
--   changed("tools"), updated(uri): tells clients that listen
--   detach(milliseconds): closes the connection of this call; the client comes back
--                for the answer after that time (2025-11-25 over HTTP, else nothing)
--   client              key (who calls), capabilities, info
-- A handler that computes for 2 s without waiting for anything is stopped.
--
-- tool "evaluate" {
--   title = "Evaluate a Python expression",
--   description = "Evaluates one Python expression and returns its value.",
--   input = {
--     type = "object",
--     properties = { expression = { type = "string", description = "For example 2**100." } },
--     required = { "expression" }, additionalProperties = false,
--   },
--   annotations = { readOnlyHint = true, openWorldHint = false },
--   handler = function(arguments, ctx)
--     local result, text = ctx.run { language = "python", code = "print(" .. arguments.expression .. ")" }
--     if not result then return nil, text end
--     if result.status ~= "success" then return nil, result.hint or result.stderr end
--     return result.stdout
--   end,
-- }
--
-- A resource has text, or read = function(uri, variables, ctx), which returns
-- { text = ... }, { blob = base64 }, a list of these, or nil: there is none. Other
-- fields: name, title, description, mime_type, annotations, icons, meta. A
-- template has {parts}, which read gets as variables; complete tells what they
-- may be: a list of texts, or function(value, ctx), which returns one (in
-- ctx.arguments is what the client knows of the other parts already).
--
-- resource "notes://house-rules" {
--   description = "How programs are to be written here",
--   mime_type = "text/plain",
--   text = "Use integers for money. Print results as JSON.",
-- }
-- resource_template "notes://languages/{name}" {
--   description = "What is known of a language", mime_type = "application/json",
--   complete = { name = { "python", "cpp" } },
--   read = function(uri, variables, ctx)
--     for _, language in ipairs(ctx.languages()) do
--       if language.language == variables.name then return { text = ctx.json.encode(language) } end
--     end
--   end,
-- }
--
-- A prompt has arguments, all of them texts, and messages = function(arguments,
-- ctx), which returns a text or a list of { role =, content = }, or nil and what is
-- wrong with the arguments. Other fields: title, complete, icons, meta.
--
-- prompt "explain_output" {
--   description = "Explain what a program prints",
--   arguments = { { name = "code", description = "The program.", required = true } },
--   messages = function(arguments)
--     return "Run this with run_code and explain its output:\n\n" .. arguments.code
--   end,
-- }

-- Policy
-- A function that sees each checked request before it runs: language (the
-- entry's name), code, timeout_seconds and client (who asks: "stdio", an address
-- or the name of a token). It returns nothing to allow it, nil or false and a
-- reason to refuse it, or a changed request, which is checked again. That one may
-- also say memory and cpus, the limits of this program alone, above or below those
-- of `limits`; memory must stay above scratch + tmp + shm. When it fails or takes
-- longer than 0.2 s the run is refused.
--
-- policy = function(request)
--   if request.language == "cpp" and #request.code > 20000 then
--     return nil, "C++ sources over 20000 bytes are not accepted here"
--   end
--   if request.language == "python" and request.timeout_seconds > 20 then
--     request.timeout_seconds, request.memory, request.cpus = 20, "512m", 1
--     return request
--   end
-- end
policy = nil
