import assert from "node:assert/strict";
import { test } from "node:test";
import { isInterfaceName, isInterfaceNamePrefix } from "./interface-name.ts";

// Tried on Linux 6.18 with SIOCSIFNAME.
const TAKEN = ["eth0", "...", ".a", "a*", "*", "ä", "a\u2003b", "a\x1fb", "a\x7fb", "fifteen-letters"];
const REFUSED = ["", "a:b", "a/b", "a b", "a\tb", "a\vb", "a\u00a0b", "à", "a\0b", "sixteen-letters0", "éééééééé"];

test("names of interfaces are those that the kernel takes", () => {
  for (const name of TAKEN) assert.equal(isInterfaceName(name), true, JSON.stringify(name));
  for (const name of [...REFUSED, ".", ".."]) assert.equal(isInterfaceName(name), false, JSON.stringify(name));
});

test("a name can begin with dots alone", () => {
  for (const name of [...TAKEN, ".", ".."]) assert.equal(isInterfaceNamePrefix(name), true, JSON.stringify(name));
  for (const name of REFUSED) assert.equal(isInterfaceNamePrefix(name), false, JSON.stringify(name));
});
