import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../testkit/support/fast-check.ts";
import { base32FromHex, hexFromBase32 } from "./base32.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** RFC 4648: five bits per character; the last group is padded with zero bits. */
function base32(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let pending = 0;
  for (const byte of bytes) {
    pending = ((pending << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(pending >>> bits) & 31];
    }
  }
  return bits > 0 ? text + ALPHABET[(pending << (5 - bits)) & 31] : text;
}

test("bytes and their hexadecimal text have the same base32 text", () => {
  const tenBytes = fc.uint8Array({ minLength: 10, maxLength: 10 });
  fc.assert(
    fc.property(tenBytes, (bytes) => {
      const hex = Buffer.from(bytes).toString("hex");
      assert.equal(base32FromHex(hex), base32(bytes));
      assert.equal(hexFromBase32(base32(bytes)), hex);
    }),
  );
});

test("the alphabet is that of RFC 4648", () => {
  assert.equal(base32(Buffer.from("foobar")), "MZXW6YTBOI");
  assert.equal(hexFromBase32("MZXW6YT!"), undefined);
  assert.equal(hexFromBase32("MZXW6"), undefined);
  assert.equal(base32FromHex("00443214c74254b635cf84653a56d7c675be77df"), "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
});
