import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { detectorFor, type LocalTrafficSettings } from "./local-traffic-detector.ts";

const NOTHING: LocalTrafficSettings = {
  mode: "ClusterCIDR",
  clusterCIDRs: [],
  podCIDRs: [],
  bridgeInterface: "",
  interfaceNamePrefix: "",
};

const rows: readonly [string, Partial<LocalTrafficSettings>, unknown, unknown][] = [
  [
    "ClusterCIDR takes the first prefix of each family, canonical",
    { clusterCIDRs: ["10.0.0.1/8", "fd00:0::1/64", "11.0.0.0/8", "fd01::/64"] },
    { kind: "cidr", cidr: "10.0.0.0/8" },
    { kind: "cidr", cidr: "fd00::/64" },
  ],
  [
    "an empty mode is ClusterCIDR",
    { mode: "", clusterCIDRs: ["10.0.0.0/8"] },
    { kind: "cidr", cidr: "10.0.0.0/8" },
    { kind: "none" },
  ],
  ["one empty text is no prefix", { clusterCIDRs: [""] }, { kind: "none" }, { kind: "none" }],
  [
    "NodeCIDR looks at the node's pod prefixes only",
    { mode: "NodeCIDR", clusterCIDRs: ["10.0.0.0/8"], podCIDRs: ["fd00:9::/80", "10.1.2.0/24"] },
    { kind: "cidr", cidr: "10.1.2.0/24" },
    { kind: "cidr", cidr: "fd00:9::/80" },
  ],
  [
    "BridgeInterface is the same in both families",
    { mode: "BridgeInterface", bridgeInterface: "cbr0", clusterCIDRs: ["10.0.0.0/8"] },
    { kind: "interface", name: "cbr0" },
    { kind: "interface", name: "cbr0" },
  ],
  [
    "a wildcard behind BridgeInterface is one in every mode: iptables writes +, nft *",
    { mode: "BridgeInterface", bridgeInterface: "cali+" },
    { kind: "interface-prefix", prefix: "cali" },
    { kind: "interface-prefix", prefix: "cali" },
  ],
  [
    "a wildcard of nft behind BridgeInterface",
    { mode: "BridgeInterface", bridgeInterface: "cali*" },
    { kind: "interface-prefix", prefix: "cali" },
    { kind: "interface-prefix", prefix: "cali" },
  ],
  [
    "InterfaceNamePrefix is the same in both families",
    { mode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
    { kind: "interface-prefix", prefix: "veth" },
    { kind: "interface-prefix", prefix: "veth" },
  ],
  [
    "a prefix as long as a name can be is a name: iptables would not take a wildcard behind it",
    { mode: "InterfaceNamePrefix", interfaceNamePrefix: "gke-pod-eth0-vh" },
    { kind: "interface", name: "gke-pod-eth0-vh" },
    { kind: "interface", name: "gke-pod-eth0-vh" },
  ],
  ["an unknown mode detects nothing", { mode: "Magic" }, { kind: "none" }, { kind: "none" }],
];

describe("local traffic detector", () => {
  for (const [name, settings, v4, v6] of rows) {
    test(name, () => {
      assert.deepEqual(detectorFor("IPv4", { ...NOTHING, ...settings }).detector, v4);
      assert.deepEqual(detectorFor("IPv6", { ...NOTHING, ...settings }).detector, v6);
    });
  }

  test("says why it detects nothing, in the words that operators know", () => {
    const reason = (settings: Partial<LocalTrafficSettings>) => detectorFor("IPv4", { ...NOTHING, ...settings }).reason;
    assert.deepEqual(reason({ clusterCIDRs: ["fd00::/8"] }), {
      message: "Detect-local-mode set to ClusterCIDR, but no cluster CIDR specified for primary IP family",
      facts: { ipFamily: "IPv4", clusterCIDRs: ["fd00::/8"] },
    });
    assert.deepEqual(reason({ mode: "NodeCIDR" }), {
      message: "Detect-local-mode set to NodeCIDR, but no PodCIDR defined at node for primary IP family",
      facts: { ipFamily: "IPv4", podCIDRs: [] },
    });
    assert.equal(reason({ mode: "Magic" })?.message, "Defaulting to no-op detect-local");
    assert.equal(reason({ clusterCIDRs: ["10.0.0.0/8"] }), undefined);
  });
});
