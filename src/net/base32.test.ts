import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { base32, base32FromHex } from "./base32.ts";

test("bytes and their hexadecimal text have the same base32 text", () => {
  const tenBytes = fc.uint8Array({ minLength: 10, maxLength: 10 });
  fc.assert(
    fc.property(tenBytes, (bytes) => {
      assert.equal(base32FromHex(Buffer.from(bytes).toString("hex")), base32(bytes));
    }),
  );
});

test("the alphabet is that of RFC 4648", () => {
  assert.equal(base32(Buffer.from("foobar")), "MZXW6YTBOI");
  assert.equal(base32FromHex("00443214c74254b635cf84653a56d7c675be77df"), "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
});
