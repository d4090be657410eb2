import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../model/testing/records.ts";
import { nodeFacts } from "./facts.ts";

test("masquerading towards an own IPv6 address, loopback too, keeps that address as the source", () => {
  const routes = [
    { cidr: "::/0", device: "eth0", address: ip("fd00::10") },
    { cidr: "0.0.0.0/0", device: "eth0", address: ip("192.0.2.10") },
  ];
  const { ownAddressTowards } = nodeFacts({ addresses: [ip("fd00::11"), ip("192.0.2.11")], routes });
  assert.equal(ownAddressTowards(ip("::1")), "::1");
  assert.equal(ownAddressTowards(ip("fd00::11")), "fd00::11");
  assert.equal(ownAddressTowards(ip("fd00::99")), "fd00::10");
  assert.equal(ownAddressTowards(ip("192.0.2.11")), "192.0.2.10");
});
