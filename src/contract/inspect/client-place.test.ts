import assert from "node:assert/strict";
import { test } from "node:test";
import { cidrContains, familyOf, parseCidr } from "../../net/ip.ts";
import { clientPlace } from "./client-place.ts";
import type { OfflineNode } from "./offline-node.ts";

test("a pod of a node is at an address of the node's network, however small that is", () => {
  const networks = ["10.244.1.0/24", "10.244.0.0/16", "10.4.1.64/26", "10.4.1.128/28", "10.4.1.8/32"];
  for (const text of [...networks, "fd00:10:1::/64", "fd00:10::1:ff00/120", "fd00:10::7f0/124", "2001:db8:1:2::/64"]) {
    const cidr = parseCidr(text);
    assert.ok(cidr !== undefined);
    const node = { family: familyOf(cidr), detector: { kind: "none" } } as OfflineNode;
    const place = clientPlace("pod", node, [text]);
    assert.ok(place !== undefined && cidrContains(cidr, place.address), `${place?.address} is not in ${text}`);
  }
});
