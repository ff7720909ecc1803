-- Programs and what run_code must make of them, each from a fault seen in some
-- code runner. A group is { title, case... }, a case { id and title, py or cpp =
-- source, timeout = seconds, and what is expected }: see check.lua for the words.
-- An id is never given to another case, so that what covers what can be noted.
-- A status that is not named means success.
local client = require "e2e.client"

local NONE = client.json.null
local CAP = 102400 + 64 -- the output limit and its marker

local function all_bytes()
  local ascii = {}
  for byte = 0, 127 do ascii[#ascii + 1] = string.char(byte) end
  return table.concat(ascii) .. ("\u{FFFD}"):rep(128)
end
local ALL_BYTES = all_bytes()

-- Six or seven ticks fit into three seconds, one every half second.
local function TICKS(result)
  local n = 0
  for at in result.stdout:gmatch("tick (%d+)\n") do
    if tonumber(at) ~= n then return "tick " .. at .. " in place " .. n end
    n = n + 1
  end
  if n < 4 or n > 7 then return n .. " ticks" end
end

-- Accounts of this machine that no image has are not to be seen.
local function NO_HOST_ACCOUNTS(result)
  local passwd = client.read_file("/etc/passwd") or ""
  for name, id in passwd:gmatch("([^:\n]+):[^:\n]*:(%d+):") do
    id = tonumber(id)
    if id >= 1000 and id < 60000 and result.stderr:find(name .. ":", 1, true) then return "shows " .. name end
  end
end

return {
  { "output",
    { "R001 first bytes of both streams are there", py = [[
import sys
print('0123456789abcdef')
print('ERR-0123456789', file=sys.stderr)]],
      stdout = "0123456789abcdef\n", err_has = "ERR-0123456789" },
    { "R002 a program that prints nothing", py = "pass",
      stdout = "", stderr = "", stdout_bytes = 0, truncated = false },
    { "R003 every byte value", py = [[
import os
os.write(1, bytes(range(256)))]],
      stdout = ALL_BYTES, stdout_bytes = 256 },
    { "R004 colour codes pass through whole", py = "print('\\x1b[31mred\\x1b[0m plain')",
      stdout = "\027[31mred\027[0m plain\n" },
    { "R005 a character that arrives in pieces is whole", py = [[
import os, time
for b in (b'\xe2', b'\x89', b'\xa4', b'\n'):
    os.write(1, b)
    time.sleep(0.3)]],
      stdout = "≤\n" },
    { "R006 output of exactly the limit is not cut", py = [[
import sys
sys.stdout.write('x' * 102400)]],
      lacks = { "truncat" }, stdout_length = 102400, stdout_bytes = 102400, truncated = false },
    { "R007 one line of five million characters", py = [[
import sys
sys.stdout.write('z' * 5000000)
sys.stdout.flush()
print('end', file=sys.stderr)]],
      err_has = "end", stdout_max = CAP, stdout_bytes = 5000000, truncated = true, out_has = "OUTPUT TRUNCATED" },
    { "R008 a flood on stderr leaves stdout alone", py = [[
import sys
sys.stderr.write('e' * 300000)
print('ok')]],
      stdout = "ok\n", stderr_bytes = 300000, stderr_max = CAP, truncated = true, err_has = "OUTPUT TRUNCATED" },
    { "R009 each stream keeps its own order", py = [[
import sys
for i in (1, 2, 3):
    print('out', i, flush=True)
    print('err', i, file=sys.stderr, flush=True)]],
      stdout = "out 1\nout 2\nout 3\n", err_has = "err 1\nerr 2\nerr 3\n" },
    { "R010 stdout closed before the end is not the end", py = [[
import os, sys, time
sys.stdout.write('early\n')
sys.stdout.flush()
os.close(1)
time.sleep(1)
sys.stderr.write('late\n')
sys.stderr.flush()
os._exit(7)]],
      status = "error", exit_code = 7, stdout = "early\n", err_has = "late\n", reason = "exit" },
    { "R011 text flushed before a time-out is kept", cpp = [[
#include <iostream>
int main() {
    std::cout << "before the loop" << std::endl;
    volatile unsigned long n = 0;
    for (;;) ++n;
}]],
      timeout = 6, status = "timeout", stdout = "before the loop\n", reason = "timeout", exit_code = NONE },
    { "R012 bad bytes on stderr are replaced", py = [[
import os
os.write(2, b'bad \xfe end\n')
print('ok')]],
      stdout = "ok\n", err_has = "bad � end" },
  },

  { "ends",
    { "R013 a plain exit code", py = [[
import sys
print('partial')
sys.exit(3)]],
      status = "error", exit_code = 3, stdout = "partial\n", reason = "exit" },
    { "R014 only eight bits of an exit code count", py = [[
import sys
sys.exit(256)]],
  },
    { "R015 a segmentation fault", cpp = [[
int main() {
    volatile int* p = reinterpret_cast<volatile int*>(8);
    *p = 1;
    return 0;
}]],
      status = "error", exit_code = 139, reason = "signal", signal = "SIGSEGV", hint_has = "egmentation fault" },
    { "R016 abort is SIGABRT and not a crash", cpp = [[
#include <cstdlib>
int main() { std::abort(); }]],
      status = "error", exit_code = 134, reason = "signal", signal = "SIGABRT" },
    { "R017 the text of a failed assert", cpp = [[
#include <cassert>
int main() { int apples = 1; assert(apples == 2); }]],
      status = "error", exit_code = 134, err_has = "apples == 2", signal = "SIGABRT" },
    { "R018 a program that ends itself by SIGTERM", py = [[
import os, signal
os.kill(os.getpid(), signal.SIGTERM)
print('survived')]],
      status = "error", exit_code = 143, lacks = { "survived" }, reason = "signal", signal = "SIGTERM" },
    { "R019 the return value of main", cpp = [[
#include <cstdio>
int main() { std::puts("done"); return 42; }]],
      status = "error", exit_code = 42, stdout = "done\n" },
    { "R020 exit code 125 is the program's own", py = [[
import sys
print('user code')
sys.exit(125)]],
      status = "error", exit_code = 125, stdout = "user code\n", reason = "exit" },
    { "R021 an exception after output, with its lines", py = [[
def f(x):
    return 10 / x

print('a')
f(0)]],
      status = "error", exit_code = 1, stdout = "a\n", err_has = { "line 5", "line 2", "ZeroDivisionError" } },
    { "R022 reading all of stdin ends at once", py = [[
import sys
print(repr(sys.stdin.read()))]],
      stdout = "''\n", within = 4 },
    { "R023 a syntax error of the snippet", py = "print('never closed'",
      status = "error", exit_code = 1, stdout = "", err_has = "SyntaxError" },
  },

  { "time limits",
    { "R024 sleeping past the limit", py = [[
import time
print('start', flush=True)
time.sleep(30)]],
      timeout = 2, status = "timeout", stdout = "start\n", reason = "timeout", exit_code = NONE, within = 6 },
    { "R025 a program deaf to polite signals", py = [[
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('deaf', flush=True)
while True:
    time.sleep(1)]],
      timeout = 2, status = "timeout", stdout = "deaf\n", within = 6 },
    { "R026 forked children that ignore signals", py = [[
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
print('spawned', flush=True)
os.wait()]],
      timeout = 3, status = "timeout", stdout = "spawned\n", within = 7 },
    { "R027 the ticks until the limit are there once", py = [[
import time
i = 0
while True:
    print('tick', i, flush=True)
    i += 1
    time.sleep(0.5)]],
      timeout = 3, status = "timeout", out_has = "tick 0\ntick 1\ntick 2\n", check = TICKS },
    { "R028 an endless constant expression", cpp = [[
constexpr int spin() { int i = 0; while (true) { ++i; } return i; }
constexpr int v = spin();
int main() { return v; }]],
      status = "compile_error", err_has = "constexpr", reason = "compile" },
    { "R029 including an endless device", cpp = [[
#include "/dev/zero"
int main() {}]],
      timeout = 6, status = { "timeout", "compile_error" }, reason = { "compile", "compile_oom",
      "compile_timeout" } },
    { "R030 a giant initialised array is bounded", cpp = [[
int big[1 << 28] = {1};
int main(int argc, char**) { return big[argc * 5]; }]],
      timeout = 15, status = { "compile_error", "timeout" }, reason = { "compile", "compile_oom",
      "compile_timeout" } },
  },

  { "memory and temporary space",
    { "R031 growing until the memory limit", py = [[
print('growing', flush=True)
chunks = []
while True:
    chunks.append(bytes(1000000) + b'x')]],
      timeout = 20, status = "error", exit_code = 137, stdout = "growing\n", reason = "oom", signal = "SIGKILL",
      oom_killed = true, hint_has = "256m" },
    { "R032 an impossible allocation can be caught", cpp = [[
#include <iostream>
#include <new>
int main() {
    volatile unsigned long long n = 1ULL << 46;
    try {
        char* p = new char[n];
        p[0] = 1;
        std::cout << int(p[0]) << '\n';
    } catch (const std::bad_alloc&) {
        std::cout << "bad_alloc\n";
    }
}]],
      stdout = "bad_alloc\n" },
    { "R033 /dev/shm is capped", py = [[
total = 0
try:
    with open('/dev/shm/fill', 'wb', buffering=0) as f:
        while total < (1 << 30):
            total += f.write(b'\0' * 1048576)
    print('unbounded')
except OSError as e:
    print('stopped', e.errno in (13, 28, 30), total <= 64 * 1048576)]],
      stdout = "stopped True True\n" },
    { "R034 endless recursion in Python", py = [[
def f(n):
    return f(n + 1)

f(0)]],
      status = "error", exit_code = 1, err_has = "RecursionError" },
    { "R035 four megabytes on the stack are fine", cpp = [[
#include <iostream>
int main() {
    int a[1000000];
    for (int i = 0; i < 1000000; ++i) a[i] = i;
    long long s = 0;
    for (int v : a) s += v;
    std::cout << s << '\n';
}]],
      stdout = "499999500000\n" },
  },

  { "processes",
    { "R036 a fork bomb ends in time", py = [[
import os
while True:
    try:
        os.fork()
    except OSError:
        pass]],
      timeout = 3, status = { "timeout", "error" }, within = 9, alone = true },
    { "R037 too many threads are an error to catch", py = [[
import threading, time
n = 0
try:
    while n < 3000:
        threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        n += 1
except RuntimeError:
    pass
print('started some', n > 10)]],
      timeout = 20, stdout = "started some True\n" },
    { "R038 orphans are reaped", py = [[
import os
for _ in range(150):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
print('all rounds')]],
      timeout = 15, stdout = "all rounds\n" },
  },

  { "files and network",
    { "R039 temporary files work", py = [[
import tempfile
with tempfile.NamedTemporaryFile('w+') as f:
    f.write('round trip')
    f.seek(0)
    print(f.read())]],
      stdout = "round trip\n" },
    { "R040 the home folder is writable", py = [[
import os, pathlib
p = pathlib.Path(os.path.expanduser('~')) / '.config' / 'demo'
p.mkdir(parents=True, exist_ok=True)
(p / 'rc').write_text('x')
print('home ok')]],
      stdout = "home ok\n" },
    { "R041 no engine socket inside", py = [[
import os
print(os.path.exists('/var/run/docker.sock') or os.path.exists('/run/docker.sock'))]],
      stdout = "False\n" },
    { "R042 no way out of the network", py = [[
import socket
try:
    socket.create_connection(('192.0.2.10', 80), timeout=3)
    print('connected')
except OSError:
    print('refused')]],
      stdout = "refused\n", within = 4 },
    { "R043 loopback inside works", py = [[
import socket, threading
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen(1)

def serve():
    c, _ = s.accept()
    c.sendall(b'pong')
    c.close()

threading.Thread(target=serve).start()
c = socket.create_connection(s.getsockname())
print(c.recv(4).decode())]],
      stdout = "pong\n" },
    { "R044 a module that is not there", py = [[
import surely_not_installed_xyz
print('never')]],
      status = "error", exit_code = 1, stdout = "", err_has = "No module named 'surely_not_installed_xyz'" },
  },

  { "source text",
    { "R045 a byte order mark", py = "\u{FEFF}print('bom ok')",
      stdout = "bom ok\n" },
    { "R046 Windows line ends",
      py = "def f(flag):\r\n    if flag:\r\n\r\n        return 'yes'\r\n    return 'no'\r\n\r\nprint(f(True))\r\n",
      stdout = "yes\n" },
    { "R047 tabs mixed with spaces", py = "if True:\n\tx = 1\n        y = 2\n",
      status = "error", exit_code = 1, err_has = "TabError" },
    { "R048 a character outside the basic plane", py = [[
s = '😀'
print(len(s), s.encode('utf-8'))]],
      stdout = "1 b'\\xf0\\x9f\\x98\\x80'\n" },
    { "R049 an exception text beyond ASCII", py = "raise ValueError('ошибка №7')",
      status = "error", exit_code = 1, err_has = "ошибка №7" },
    { "R050 a Markdown fence around the code is taken off", py = [[
```python
print('fenced')
```]],
      stdout = "fenced\n" },
    { "R051 leading indentation is left as it is", py = "    print('oops')",
      status = "error", exit_code = 1, err_has = "IndentationError" },
    { "R052 a source of exactly 51200 bytes", py = "#" .. ("a"):rep(51184) .. "\nprint('edge')\n",
      stdout = "edge\n" },
    { "R053 words that end a here-document", py = [[
print('''
EOF
PY
TESTSCRIPT
EOS
''')]],
      stdout = "\nEOF\nPY\nTESTSCRIPT\nEOS\n\n" },
    { "R054 a line of 40000 characters", py = "print(len('" .. ("a"):rep(40000) .. "'))",
      stdout = "40000\n" },
  },

  { "Python",
    { "R055 the main guard", py = [[
def main():
    print('main ran')

if __name__ == '__main__':
    main()]],
      stdout = "main ran\n" },
    { "R056 the name of the snippet hides no module", py = [[
import code, random, runpy, string
print(code.InteractiveConsole.__name__, random.randint(4, 4), string.digits[:3])]],
      stdout = "InteractiveConsole 4 012\n" },
    { "R057 a relative import", py = "from . import helper",
      status = "error", exit_code = 1, err_has = "ImportError" },
    { "R058 await at top level", py = [[
import asyncio
await asyncio.sleep(0)]],
      status = "error", exit_code = 1, err_has = "SyntaxError" },
    { "R059 the source of a function at run time", py = [[
import inspect

def f():
    return 41 + 1

print(inspect.getsource(f).splitlines()[1].strip())]],
      stdout = "return 41 + 1\n" },
    { "R060 a thread that outlives the main code", py = [[
import threading
threading.Timer(0.5, print, args=('late line',)).start()
print('main line')]],
      stdout = "main line\nlate line\n" },
    { "R061 the script has a file", py = [[
import os
print(os.path.isfile(__file__), __file__.endswith('.py'))]],
      stdout = "True True\n" },
    { "R062 quotes nested in an f-string (Python 3.12)", py = [[
d = {'k': 'v'}
print(f'{d['k']}')]],
      stdout = "v\n" },
  },

  { "C++",
    { "R063 C++20 under the 17 standard", cpp = [[
#include <concepts>
template <std::integral T> T twice(T v) { return v + v; }
int main() { return twice(21) == 42 ? 0 : 1; }]],
      status = "compile_error", err_has = "error", reason = "compile" },
    { "R064 a missing semicolon", cpp = [[
#include <iostream>
int main() {
    int x = 5
    std::cout << x;
}]],
      status = "compile_error", stdout = "", err_has = { "error: expected",
      "snippet.cpp:4" },
      lacks = { "/home/", "/Users/", "/var/folders" } },
    { "R065 declared, never defined", cpp = [[
int later(int);
int main() { return later(1); }]],
      status = "compile_error", err_has = "undefined reference to" },
    { "R066 a header that is not there", cpp = [[
#include <no_such_header_here.hpp>
int main() {}]],
      status = "compile_error", err_has = { "no_such_header_here.hpp", "No such file" } },
    { "R067 the header of everything builds within the limits", cpp = [[
#include <bits/stdc++.h>
using namespace std;
int main() {
    vector<int> v{5, 3, 9};
    sort(v.begin(), v.end());
    for (int x : v) cout << x << ' ';
    cout << accumulate(v.begin(), v.end(), 0) << endl;
}]],
      stdout = "3 5 9 17\n" },
    { "R068 text without a newline at its end", cpp = [[
#include <cstdio>
int main() { std::printf("no newline at end"); }]],
      stdout = "no newline at end" },
    { "R069 including a system file shows none of the host", cpp = [[
#include "/etc/passwd"
int main() {}]],
      status = "compile_error", check = NO_HOST_ACCOUNTS },
    { "R070 text beyond ASCII", cpp = [[
#include <iostream>
int main() { std::cout << "déjà vu ✓\n"; }]],
      stdout = "déjà vu ✓\n" },
    { "R071 a thread that was never joined", cpp = [[
#include <chrono>
#include <thread>
int main() { std::thread t([] { std::this_thread::sleep_for(std::chrono::seconds(3)); }); }]],
      status = "error", exit_code = 134, err_has = "terminate called", signal = "SIGABRT" },
  },

  { "more ends",
    { "R072 a program that kills itself is not out of memory", py = [[
import os, signal
print('bye', flush=True)
os.kill(os.getpid(), signal.SIGKILL)]],
      status = "error", exit_code = 137, stdout = "bye\n", reason = "signal", signal = "SIGKILL" },
    { "R073 exit code 137 is no signal", py = "import os; os._exit(137)",
      status = "error", exit_code = 137, reason = "exit", signal = false },
    { "R074 a stack overflow", cpp = [[
int f(int n) { volatile char b[4096]; b[0] = n; return f(n + 1) + b[0]; }
int main() { return f(0); }]],
      status = "error", exit_code = 139, signal = "SIGSEGV" },
    { "R075 a division by zero", cpp = [[
int main(int argc, char**) { volatile int zero = argc - 1; return (argc + 5) / zero; }]],
      status = "error", exit_code = 136, signal = "SIGFPE" },
    { "R076 a child that outlives the program ends with it", py = [[
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
    os._exit(0)
print('main done')]],
      stdout = "main done\n", within = 4 },
    { "R077 a program that closes everything and hangs", py = [[
import os, time
for f in (0, 1, 2): os.close(f)
time.sleep(60)]],
      timeout = 2, status = "timeout", stdout = "", within = 5 },
    { "R078 a program that imports itself", py = [[
import importlib.util, sys
print('loaded', __name__)
if __name__ == '__main__':
    spec = importlib.util.spec_from_file_location('probe', __file__)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))]],
      stdout = "loaded __main__\nloaded probe\n", stderr = "" },
    { "R079 children that multiprocessing spawns", py = [[
import multiprocessing as mp
def square(x): return x * x
if __name__ == '__main__':
    mp.set_start_method('spawn')
    with mp.Pool(2) as pool: print(pool.map(square, range(4)))]],
      stdout = "[0, 1, 4, 9]\n" },
    { "R080 a global constructor that hangs is a time-out of the run", cpp = [[
struct S { S() { for (volatile int i = 0;; ++i); } } s;
int main() {}]],
      timeout = 2, status = "timeout", reason = "timeout" },
    { "R081 a quote and SQL in the source", py = [[print("x'); DROP TABLE runs;--")]],
      stdout = "x'); DROP TABLE runs;--\n" },
    { "R082 text that looks like an answer of the server", py = [[
print('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}')
print('Content-Length: 12\r\n\r\n{}')]],
      out_has = '{"jsonrpc":"2.0","id":1' },
    { "R083 separators that break lines elsewhere", py = [[
print('a\u2028b\u2029c\u0085d\x7fe')]],
      stdout = "a\u{2028}b\u{2029}c\u{85}d\u{7F}e\n" },
  },
}
