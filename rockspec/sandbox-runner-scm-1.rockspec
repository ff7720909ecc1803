package = "sandbox-runner"
version = "scm-1"
source = {
  url = "git+file://.",
}
description = {
  summary = "An MCP server that runs code in disposable, locked-down containers",
  detailed = [[
    Runs code snippets in Docker containers that are used once and thrown away, and answers with a
    structured result. The core is C; tools, languages and limits are Lua, for you to change.
  ]],
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = {
  "lua >= 5.4, < 5.5",
}
external_dependencies = {
  CURL = { header = "curl/curl.h" },
  SQLITE3 = { header = "sqlite3.h" },
  CJSON = { header = "cjson/cJSON.h" },
  MICROHTTPD = { header = "microhttpd.h" },
  CRYPTO = { header = "openssl/hmac.h" },
}
build = {
  type = "make",
  build_target = "all",
  build_variables = {
    PREFIX = "$(PREFIX)",
    CFLAGS = "$(CFLAGS)",
  },
  install_target = "install",
  install_variables = {
    PREFIX = "$(PREFIX)",
    CFLAGS = "$(CFLAGS)",
    LUA_LIBDIR = "$(LIBDIR)",
    LUA_SHAREDIR = "$(LUADIR)",
  },
}
test = {
  type = "command",
  command = "make test",
}
