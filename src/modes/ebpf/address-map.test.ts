import assert from "node:assert/strict";
import { test } from "node:test";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { ip } from "../../model/testing/records.ts";
import { ipFromBytes } from "../../net/ip.ts";
import { setAddresses } from "./open-maps.ts";

test("an address that found no room gets it when others go", () => {
  const definition = { name: "node_addrs4", type: "hash", keySize: 4, valueSize: 4, maxEntries: 2 } as const;
  const map = memoryBpf().createMap(definition);
  const set = (...texts: readonly string[]): readonly string[] => {
    setAddresses(map, new Set(texts.map(ip)));
    return map
      .entries()
      .map(([key]) => ipFromBytes(key))
      .sort();
  };
  assert.deepEqual(set("192.168.0.2", "192.168.0.3", "192.168.0.4"), ["192.168.0.2", "192.168.0.3"]);
  assert.deepEqual(set("192.168.0.3", "192.168.0.4"), ["192.168.0.3", "192.168.0.4"]);
  assert.deepEqual(set("192.168.0.4"), ["192.168.0.4"]);
});
