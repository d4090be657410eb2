import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { parseIpAddress } from "./ip.ts";

test("an IPv6 address that is kept costs its own characters, and not a URL's", () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  const texts = Array.from({ length: 50_000 }, (_, index) =>
    Buffer.from(`fd00:1111:2222:3333:4444:5555:${(index >> 8).toString(16)}:${(index & 255).toString(16)}`).toString(),
  );
  gc();
  const before = process.memoryUsage().heapUsed;
  const addresses = texts.map(parseIpAddress);
  gc();
  const each = (process.memoryUsage().heapUsed - before) / addresses.length;
  assert.ok(each < 85, `${each} bytes each`);
  assert.equal(addresses[258], "fd00:1111:2222:3333:4444:5555:1:2");
});
