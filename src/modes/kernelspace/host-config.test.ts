import assert from "node:assert/strict";
import type { NetworkInterfaceInfo } from "node:os";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { hostInterfaces, hostMacOf } from "./host-config.ts";

const entry = (address: string, mac: string): NetworkInterfaceInfo => ({
  address,
  mac,
  family: "IPv4",
  internal: false,
  netmask: "255.255.255.0",
  cidr: null,
});

const INTERFACES = hostInterfaces(() => ({
  "vEthernet (Ethernet)": [entry("10.0.0.1", "00:11:22:33:44:55"), entry("10.0.0.2", "00:11:22:33:44:55")],
  "vEthernet (cbr0)": [entry("10.0.0.2", "AA:BB:CC:DD:EE:FF")],
  Loopback: [entry("127.0.0.1", "00:00:00:00:00:00")],
}));

test("the last interface with the node's address counts, its MAC address in lower case (windows.md §1.3)", () => {
  assert.equal(hostMacOf(ip("10.0.0.1"), INTERFACES), "00:11:22:33:44:55");
  assert.equal(hostMacOf(ip("10.0.0.2"), INTERFACES), "aa:bb:cc:dd:ee:ff");
  assert.deepEqual([...INTERFACES.macs], ["00:11:22:33:44:55", "aa:bb:cc:dd:ee:ff"]);
});

test("an address that is not here, or not known, is told with what to set (windows-practice.md §9.21)", () => {
  const words = /^Error: could not find host mac address for 10\.0\.0\.9: no interface has .*set --bind-address/;
  assert.throws(() => hostMacOf(ip("10.0.0.9"), INTERFACES), words);
  assert.throws(() => hostMacOf(ip("::"), INTERFACES), /for ::: the node's address is not known/);
});
