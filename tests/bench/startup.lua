--- From exec to the answer of initialize.

return function(bench)
  local exec, shell_only, total = {}, {}, {}
  bench.start_client():close() -- brings the files into the page cache
  for i = 1, bench.samples(20, 7) do
    local server = bench.start_client()
    exec[i], shell_only[i], total[i] = server.start.exec_ms, server.start.shell_ms, server.start.total_ms
    server:close()
  end
  local report = bench.report
  report:add { name = "exec to initialize answer", unit = "ms", samples = exec, bar = { op = "<=", limit = 15 } }
  report:add { name = "  the shell before it (not counted)", unit = "ms", samples = shell_only }
  report:add { name = "  both: spawn to answer", unit = "ms", samples = total }
  report:note("exec to initialize: the request lies in the pipe already; the clock starts at the last word of the "
    .. "shell before its exec.")
end
