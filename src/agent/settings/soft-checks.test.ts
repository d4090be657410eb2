import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { DraftConfig } from "../../contract/config/config.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "./defaults.ts";
import { familyCheck, fatalFamilyText, type NodeFacts, softCheck } from "./soft-checks.ts";

const BASE = applyPlatformDefaults(resolveDocument(EMPTY_DOCUMENT));
const IPV4_NODE: NodeFacts = { primaryFamily: "IPv4", podCIDRs: [] };
const IPV6_NODE: NodeFacts = { primaryFamily: "IPv6", podCIDRs: [] };
const PAIR = ["10.0.0.0/8", "fd00::/8"];

const withClusterCidrs = (clusterCIDRs: readonly string[], config: DraftConfig = BASE): DraftConfig => ({
  ...config,
  detectLocal: { ...config.detectLocal, clusterCIDRs },
});

describe("softCheck", () => {
  const ports = (nodePortAddresses: readonly string[]): DraftConfig => ({ ...BASE, nodePortAddresses });

  it("warns of node ports on every address", () => {
    assert.equal(
      softCheck(BASE, IPV4_NODE),
      "nodePortAddresses is unset; NodePort connections will be accepted on all local IPs. Consider using `--nodeport-addresses primary`",
    );
  });

  it("warns when a dual-stack cluster restricts one family only", () => {
    const text =
      "cluster appears to be dual-stack but nodePortAddresses contains only IPv4 addresses; NodePort connections will be accepted on all local IPv6 IPs";
    const restricted = ports(["10.0.0.0/8"]);
    assert.equal(softCheck(withClusterCidrs(PAIR, restricted), IPV4_NODE), text);
    assert.equal(softCheck(restricted, { ...IPV4_NODE, podCIDRs: PAIR }), text);
    assert.equal(softCheck({ ...restricted, ipvs: { ...BASE.ipvs, excludeCIDRs: PAIR } }, IPV4_NODE), text);
    assert.equal(softCheck(restricted, IPV4_NODE), undefined);
    assert.equal(softCheck(withClusterCidrs(PAIR, ports(PAIR)), IPV4_NODE), undefined);
  });

  it("warns when the primary family is not restricted", () => {
    assert.equal(
      softCheck(ports(["fd00::/8"]), IPV4_NODE),
      "cluster appears to be IPv4-primary but nodePortAddresses contains only IPv6 addresses; NodePort connections will be accepted on all local IPv4 IPs",
    );
    assert.equal(softCheck(ports(["fd00::/8"]), IPV6_NODE), undefined);
  });
});

describe("familyCheck", () => {
  it("is content with the defaults", () => {
    assert.equal(familyCheck(BASE, IPV4_NODE, true), undefined);
    assert.equal(familyCheck(BASE, { ...IPV4_NODE, podCIDRs: ["10.0.0.0/24"] }, false), undefined);
  });

  it("ends a single-stack proxy whose cluster CIDRs are all of the other family", () => {
    const config = withClusterCidrs(["fd00::/8"]);
    const single = familyCheck(config, IPV4_NODE, false);
    assert.deepEqual(single, {
      message: "cluster is IPv4-only but clusterCIDRs contains only IPv6 addresses",
      fatal: true,
    });
    assert.equal(
      single && fatalFamilyText(single),
      "kube-proxy configuration is incorrect: cluster is IPv4-only but clusterCIDRs contains only IPv6 addresses",
    );
    assert.deepEqual(familyCheck(config, IPV4_NODE, true), {
      message: "cluster is IPv4-primary but clusterCIDRs contains only IPv6 addresses",
      fatal: false,
    });
    assert.equal(familyCheck({ ...config, detectLocalMode: "NodeCIDR" }, IPV4_NODE, false)?.fatal, false);
    assert.equal(familyCheck(withClusterCidrs(PAIR), IPV4_NODE, false), undefined);
  });

  it("ends a proxy in NodeCIDR mode whose pod CIDRs are all of the other family", () => {
    const node = { ...IPV6_NODE, podCIDRs: ["10.0.0.0/24"] };
    const message = "cluster is IPv6-primary but node.spec.podCIDRs contains only IPv4 addresses";
    assert.deepEqual(familyCheck({ ...BASE, detectLocalMode: "NodeCIDR" }, node, true), { message, fatal: true });
    assert.deepEqual(familyCheck(BASE, node, true), { message, fatal: false });
  });

  it("notes addresses of the other family, which matter to a single-stack proxy alone", () => {
    const config: DraftConfig = {
      ...BASE,
      ipvs: { ...BASE.ipvs, excludeCIDRs: ["fd00::/8"] },
      healthzBindAddress: "[fd00::1]:10256",
      metricsBindAddress: "[::1]:10249",
      winkernel: { ...BASE.winkernel, sourceVip: "fd00::2" },
    };
    assert.deepEqual(familyCheck(config, IPV4_NODE, false), {
      message:
        "[cluster is IPv4-only but winkernel.sourceVip is IPv6, cluster is IPv4-only but ipvs.excludeCIDRs contains only IPv6 addresses, " +
        "cluster is IPv4-only but healthzBindAddress is IPv6, cluster is IPv4-only but metricsBindAddress is IPv6]",
      fatal: false,
    });
    assert.equal(
      familyCheck(config, IPV4_NODE, true)?.message,
      "cluster is IPv4-primary but winkernel.sourceVip is IPv6",
    );
    assert.equal(familyCheck({ ...BASE, healthzBindAddress: "[::]:10256" }, IPV4_NODE, false), undefined);
  });
});
