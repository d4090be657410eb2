/** The backend of the nftables mode for a case, on the real kernel. */
import assert from "node:assert/strict";
import type { SyncOutcome } from "../../src/contract/backend.ts";
import type { NetlinkRuleset } from "../../src/kernel/nftables/netlink-nftables.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { nodePortIPs, withoutLoopback } from "../../src/model/node-port-addresses.ts";
import { NftablesBackend } from "../../src/modes/nftables/backend.ts";
import type { LayoutName } from "../../src/modes/nftables/layout-name.ts";
import { familyOf, type IpFamily } from "../../src/net/ip.ts";
import { caseModel, caseRejectedAtLocalhost, caseRelease } from "./conformance-case.ts";
import { ip } from "./example-clusters.ts";

export const TABLE = "kube-proxy";
const NODE_ADDRESSES = ["127.0.0.1", "::1", "10.200.0.2", "10.180.0.1", "fd00:200::2", "fd00:10:180::1"].map(ip);
const SERVICE_CIDRS = ["10.96.0.0/12", "fd00:10:96::/108"];

/** What syncs a case in one family. @param serviceCIDRs those that are known. */
export function caseBackend(
  name: string,
  family: IpFamily,
  ruleset: NetlinkRuleset,
  layout: LayoutName = "Compatible",
): { sync(serviceCIDRs?: readonly string[]): Promise<SyncOutcome> } {
  const model = caseModel(name, family, ["primary"]);
  const addresses = NODE_ADDRESSES.filter((address) => familyOf(address) === family);
  const backend = new NftablesBackend({
    config: {
      family,
      nodeName: model.node.name,
      nodeIP: model.addresses.ips[family],
      masqueradeMark: 2 ** (model.config.masqueradeBit ?? 14),
      hashSeed: 1,
      masqueradeAll: model.config.masqueradeAll ?? false,
      detector: model.detector,
      release: caseRelease(name),
      rejectedAtLocalhost: caseRejectedAtLocalhost(name, model),
    },
    layout,
    nft: ruleset.open({ family: family === "IPv4" ? "ip" : "ip6", table: TABLE }),
    nodePortIPs: async () => withoutLoopback(nodePortIPs(model.nodePortAddresses, addresses)),
    metrics: { syncFailures: { inc: () => assert.fail("a refused sync") }, cleanupFailures: { inc() {} } },
    log: silentLogger,
  });
  const sync = (serviceCIDRs: readonly string[] = SERVICE_CIDRS) =>
    backend.sync(
      {
        isFullSync: true,
        services: model.state.services,
        endpoints: model.state.endpoints,
        endpointCount: model.state.endpointCount,
        changedPorts: new Set(model.state.services.keys()),
        zone: model.node.zone,
        serviceCIDRs,
      },
      new AbortController().signal,
    );
  return { sync };
}
