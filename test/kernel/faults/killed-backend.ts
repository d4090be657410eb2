/**
 * A process that is killed when a batch is complete and about to be sent: syncs a service with this many endpoints (first
 * argument) and dies with the last operation or, with `whole`, lives to the end. The third argument names the layout.
 */

import { openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import type { Nftables, NftOperation } from "../../../src/kernel/nftables/nftables.ts";
import { layoutNameOf } from "../../../src/modes/nftables/layout-name.ts";
import { newModel } from "../../../src/modes/nftables/testing/backend-rig.ts";
import { port, remote } from "../../../testkit/dataplane/test-cluster.ts";

const [count, end, layout = ""] = process.argv.slice(2);
const ruleset = openNetlinkRuleset();
let written = 0;

function* counted(operations: Iterable<NftOperation>): Iterable<NftOperation> {
  for (const operation of operations) {
    written += 1;
    yield operation;
  }
  // All are encoded now; the next call sends them.
  if (end !== "whole") process.kill(process.pid, "SIGKILL");
}

function connect(): Nftables {
  const nft = ruleset.open({ family: "ip", table: "kube-proxy" });
  return { ...nft, transact: (operations, options) => nft.transact(counted(operations), options) };
}

const model = newModel({ connect, layout: layoutNameOf(layout) ?? "Compatible" });
const endpoints = Array.from({ length: Number(count) }, (_, index) => remote(`10.180.0.${index + 1}`));
model.set(port("a", "10.96.0.1"), endpoints);
await model.rig.sync();
model.rig.close();
await ruleset.close();
process.stdout.write(String(written));
