import assert from "node:assert/strict";
import { test } from "node:test";
import { unknownCount } from "../../contract/traffic.ts";
import type { NftElement, NftValue } from "../../kernel/nftables/ruleset.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { fillFromSets } from "./counters.ts";
import { ALLOWED_SOURCES, FLAT_SETS } from "./flat/names.ts";

test("no packets fewer than none are dropped: who was let in since the first set was read is in the second alone", () => {
  const address = ip("198.51.100.1");
  const count = unknownCount();
  const key: readonly NftValue[] = [address, "tcp", 80];
  const sets = new Map<string, readonly NftElement[]>([
    [FLAT_SETS.restrictedFrontends, [{ key, packets: 10 }]],
    [`${ALLOWED_SOURCES}-24`, [{ key: [...key, ip("203.0.113.0")], packets: 13 }]],
  ]);
  const name = servicePortName("shop", "web", "http", "TCP");
  fillFromSets(sets, [{ name, family: "IPv4", frontends: [{ address, port: 80, count }], endpoints: [] }]);
  assert.equal(count.dropped, 0);
});
