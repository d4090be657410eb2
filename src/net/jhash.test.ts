import assert from "node:assert/strict";
import { test } from "node:test";
import { ipBytes, parseIpAddress } from "./ip.ts";
import { jhash, slotOf } from "./jhash.ts";

/**
 * What Linux 6.18 put into sets by `add @set { ip saddr . jhash ip saddr mod 4294967295 seed 0xcafe1234 }`, and with `ip saddr . udp
 * sport` and seed 5. Of 300 sources for each row all were as computed here.
 */
const BY_SOURCE = [
  ["10.77.147.18", 878430],
  ["10.77.33.232", 9147666],
  ["fd77::1d6d:6a6", 12941699],
  ["fd77::212e:77f", 16574940],
] as const;
const BY_FLOW = [
  ["10.77.98.181", 38904, 2073195],
  ["10.77.2.36", 53593, 14701110],
  ["fd77::1c56:667", 53587, 3537079],
  ["fd77::f42:373", 58452, 36623986],
] as const;

const ALL = 0xffff_ffff;
const bytesOf = (address: string): Uint8Array => {
  const parsed = parseIpAddress(address);
  assert.ok(parsed !== undefined);
  return ipBytes(parsed);
};

test("sources have the slots that the kernel gives them", () => {
  for (const [address, slot] of BY_SOURCE) assert.equal(slotOf(jhash(bytesOf(address), 0xcafe1234), ALL), slot);
  for (const address of ["10.77.8.78", "10.77.159.102"]) assert.equal(slotOf(jhash(bytesOf(address), 0), 97), 0);
});

test("a port is two bytes and two zeros behind the address", () => {
  for (const [address, port, slot] of BY_FLOW) {
    const bytes = Uint8Array.of(...bytesOf(address), port >> 8, port & 255, 0, 0);
    assert.equal(slotOf(jhash(bytes, 5), ALL), slot, address);
  }
});

test("the published value of lookup3", () => {
  // Bob Jenkins, lookup3.c, driver5: hashlittle("Four score and seven years ago", 30, 1), with its own first value.
  const text = Buffer.from("Four score and seven years ago");
  assert.equal(jhash(text, 0), 0x17770551);
  assert.equal(jhash(text, 1), 0xcd628161);
});

test("a slot is taken from the leading bits", () => {
  assert.equal(slotOf(0x8000_0000, 512), 256);
  assert.equal(slotOf(ALL, 3), 2);
  assert.equal(slotOf(0, 3), 0);
});
