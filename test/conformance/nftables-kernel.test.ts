/**
 * Every case through the backend into the kernel, over netlink: the kernel then holds, byte for byte, what it holds after
 * `nft` has loaded upstream's ruleset, and `nft` prints what it printed for upstream.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { NftablesBackend } from "../../src/dataplane/nftables/backend.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../src/kernel/nftables/netlink-nftables.ts";
import { LAYOUTS } from "../../src/kernel/nftables/netlink-values.ts";
import { type NftablesClient, openNftables } from "../../src/kernel/nftables/wire/nftables-client.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { nodePortIPs } from "../../src/model/node-port-addresses.ts";
import { familyOf, type IpFamily } from "../../src/net/ip.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { canonicalNftText } from "./canonical-nft-text.ts";
import { canonicalNftables } from "./canonical-nftables.ts";
import { caseFile, caseModel, caseNames } from "./conformance-case.ts";
import { ip } from "./example-clusters.ts";
import { rawTable } from "./raw-nftables.ts";

const TABLE = "kube-proxy";
const NODE_ADDRESSES = ["127.0.0.1", "::1", "10.200.0.2", "10.180.0.1", "fd00:200::2", "fd00:10:180::1"].map(ip);
const SERVICE_CIDRS = ["10.96.0.0/12", "fd00:10:96::/108"];

function backendOf(name: string, family: IpFamily, ruleset: NetlinkRuleset) {
  const model = caseModel(name, family, ["primary"]);
  const addresses = NODE_ADDRESSES.filter((address) => familyOf(address) === family);
  const backend = new NftablesBackend({
    config: {
      family,
      nodeName: model.node.name,
      nodeIP: model.addresses.ips[family],
      masqueradeMark: 2 ** (model.config.masqueradeBit ?? 14),
      masqueradeAll: model.config.masqueradeAll ?? false,
      detector: model.detector,
    },
    nft: ruleset.open({ family: family === "IPv4" ? "ip" : "ip6", table: TABLE }),
    nodePortIPs: async () => nodePortIPs(model.nodePortAddresses, addresses),
    metrics: { syncFailures: { inc: () => assert.fail("a refused sync") }, cleanupFailures: { inc() {} } },
    log: silentLogger,
  });
  const sync = () =>
    backend.sync(
      {
        isFullSync: true,
        services: model.state.services,
        endpoints: model.state.endpoints,
        endpointCount: model.state.endpointCount,
        changedPorts: new Set(model.state.services.keys()),
        zone: model.node.zone,
        serviceCIDRs: SERVICE_CIDRS,
      },
      new AbortController().signal,
    );
  return { sync };
}

inNetns(import.meta.url, { name: "nftconf", timeoutMs: 180_000 }, () => {
  let client: NftablesClient;
  let ruleset: NetlinkRuleset;
  before(() => {
    client = openNftables();
    ruleset = openNetlinkRuleset();
  });
  after(async () => {
    await client.close();
    await ruleset.close();
  });
  const flush = () => execFileSync("nft", ["flush", "ruleset"]);
  const raw = () => Promise.all([LAYOUTS.ip, LAYOUTS.ip6].map(({ nfproto }) => rawTable(client, nfproto, TABLE)));

  for (const name of caseNames()) {
    test(name, async () => {
      flush();
      execFileSync("nft", ["-f", "-"], { input: caseFile(name, "nftables/nft.txt") });
      const upstream = await raw();
      flush();
      const families: IpFamily[] = ["IPv4", "IPv6"];
      const backends = families.map((family) => backendOf(name, family, ruleset));
      for (const { sync } of backends) assert.deepEqual((await sync()).failures, []);
      const ours = await raw();
      for (const [index, text] of ours.entries()) assert.equal(text, upstream[index]);
      const text = execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });
      assert.equal(canonicalNftText(text), canonicalNftText(caseFile(name, "nftables/nft.txt")));
      const json = execFileSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8", maxBuffer: 2 ** 28 });
      const captured = JSON.parse(caseFile(name, "nftables/nft.json"));
      assert.equal(canonicalNftables(JSON.parse(json).nftables), canonicalNftables(captured.nftables));

      const { id } = await client.generation();
      for (const family of families) await backendOf(name, family, ruleset).sync();
      assert.equal((await client.generation()).id, id, "a restarted process wrote something");
    });
  }
});
