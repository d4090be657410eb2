import assert from "node:assert/strict";
import { test } from "node:test";
import { compareInventories } from "./compare.ts";
import { InventoryDraft } from "./inventory.ts";

test("of a set that packets fill, how long something stays is compared", () => {
  const inventory = (...lines: readonly string[]) => {
    const draft = new InventoryDraft();
    draft.place("ip kube-proxy");
    const set = { kind: "set", place: "ip kube-proxy", name: "affinity", isOrdered: false } as const;
    draft.hold({ ...set, isDynamic: true, lines });
    return draft.finish("nft");
  };
  const ownership = {
    isOurs: () => true,
    isOurRule: () => true,
    isUnordered: () => false,
    isShared: () => false,
  };
  const wanted = inventory("type ipv4_addr", "timeout 10m");
  const differences = (...lines: readonly string[]) =>
    compareInventories(wanted, inventory(...lines), ownership).map(({ missing, extra }) => [missing, extra]);
  assert.deepEqual(differences("flags dynamic,timeout", "timeout 10m", "10.0.0.1 expires 3m"), []);
  assert.deepEqual(differences("timeout 5m"), [[["timeout 10m"], ["timeout 5m"]]]);
});
