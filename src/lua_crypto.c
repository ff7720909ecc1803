/* lua_crypto.c - core.crypto: HMAC, comparison in constant time, base64. */
#include <lauxlib.h>
#include <lua.h>

#include "crypto.h"
#include "lua_bind.h"

/* hmac_sha256(key, text) -> 64 lower-case hex digits. */
static int crypto_hmac(lua_State *L)
{
    static const char digits[] = "0123456789abcdef";
    size_t key_len, n;
    const char *key = luaL_checklstring(L, 1, &key_len);
    const char *text = luaL_checklstring(L, 2, &n);
    unsigned char mac[SR_HMAC_SIZE];
    char hex[2 * SR_HMAC_SIZE];
    struct sr_err err;

    if (sr_crypto_hmac_sha256(key, key_len, text, n, mac, &err) < 0)
        return luaL_error(L, "%s", err.msg);
    for (size_t i = 0; i < SR_HMAC_SIZE; i++) {
        hex[2 * i] = digits[mac[i] >> 4];
        hex[2 * i + 1] = digits[mac[i] & 15];
    }
    lua_pushlstring(L, hex, sizeof hex);
    return 1;
}

/* equal(a, b) -> whether both strings are the same; tells by its time only their lengths. */
static int crypto_equal(lua_State *L)
{
    size_t a_len, b_len;
    const char *a = luaL_checklstring(L, 1, &a_len);
    const char *b = luaL_checklstring(L, 2, &b_len);

    lua_pushboolean(L, sr_crypto_equal(a, a_len, b, b_len));
    return 1;
}

/* base64(bytes) -> text (RFC 4648 section 4, padded, one line). */
static int crypto_base64(lua_State *L)
{
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    luaL_Buffer out;
    char *at = luaL_buffinitsize(L, &out, sr_base64_size(n));

    luaL_pushresultsize(&out, sr_base64_encode(at, bytes, n));
    return 1;
}

/* unbase64(text) -> bytes | nil unless text is exactly what base64() gives for some bytes. */
static int crypto_unbase64(lua_State *L)
{
    size_t n, len = 0;
    const char *text = luaL_checklstring(L, 1, &n);
    luaL_Buffer out;
    char *at = luaL_buffinitsize(L, &out, n / 4 * 3);

    if (sr_base64_decode((unsigned char *)at, &len, text, n) < 0) {
        luaL_pushfail(L);
        return 1;
    }
    luaL_pushresultsize(&out, len);
    return 1;
}

int sr_lua_open_crypto(lua_State *L)
{
    static const luaL_Reg functions[] = {{"hmac_sha256", crypto_hmac},
                                         {"equal", crypto_equal},
                                         {"base64", crypto_base64},
                                         {"unbase64", crypto_unbase64},
                                         {NULL, NULL}};

    luaL_newlib(L, functions);
    return 1;
}
