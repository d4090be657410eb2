import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CONFIG_CONF } from "../../../test/apiserver/kubeadm-files.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "./defaults.ts";
import { decodeConfiguration } from "./v1alpha1-decode.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const resolve = (body: string) => resolveDocument(decodeConfiguration(HEAD + body).document);

describe("defaults", () => {
  it("are the same with an empty document and with none", () => {
    const { document } = decodeConfiguration(HEAD);
    assert.deepEqual(JSON.parse(stable(document)), JSON.parse(stable(EMPTY_DOCUMENT)));
  });

  it("treat kubeadm's zero values as not set", () => {
    const { document, strictError } = decodeConfiguration(CONFIG_CONF);
    assert.equal(strictError, undefined);
    const defaults = resolveDocument(EMPTY_DOCUMENT);
    assert.deepEqual(resolveDocument(document), {
      ...defaults,
      clientConnection: { ...defaults.clientConnection, kubeconfig: "/var/lib/kube-proxy/kubeconfig.conf" },
      detectLocal: { ...defaults.detectLocal, clusterCIDRs: ["10.244.0.0/16"] },
    });
  });

  it("follow the family of the bind address", () => {
    const addresses = (body: string) => {
      const { bindAddress, healthzBindAddress, metricsBindAddress } = resolve(body);
      return [bindAddress, healthzBindAddress, metricsBindAddress];
    };
    assert.deepEqual(addresses(""), ["0.0.0.0", "0.0.0.0:10256", "127.0.0.1:10249"]);
    assert.deepEqual(addresses("bindAddress: '::'"), ["::", "[::]:10256", "[::1]:10249"]);
    assert.deepEqual(addresses("bindAddress: nonsense"), ["nonsense", "[::]:10256", "[::1]:10249"]);
    assert.deepEqual(addresses("healthzBindAddress: 1.2.3.4\nmetricsBindAddress: fd00::1"), [
      "0.0.0.0",
      "1.2.3.4:10256",
      "[fd00::1]:10249",
    ]);
    assert.deepEqual(addresses("healthzBindAddress: 1.2.3.4:5\nmetricsBindAddress: nonsense").slice(1), [
      "1.2.3.4:5",
      "nonsense",
    ]);
  });

  it("come from the section of the mode", () => {
    const sections =
      "iptables: {syncPeriod: 2s, minSyncPeriod: 3s, masqueradeAll: true, masqueradeBit: 4}\n" +
      "ipvs: {syncPeriod: 5s, minSyncPeriod: 6s}\n" +
      "nftables: {syncPeriod: 7s, minSyncPeriod: 8s, masqueradeAll: false, masqueradeBit: 9}\n";
    const seen = (mode: string, body = sections) => {
      const config = resolve(`mode: ${mode}\n${body}`);
      return [config.syncPeriodMs, config.minSyncPeriodMs, config.masqueradeAll];
    };
    assert.deepEqual(seen('""'), [2000, 3000, true]);
    assert.deepEqual(seen("iptables"), [2000, 3000, true]);
    assert.deepEqual(seen("kernelspace"), [2000, 3000, true]);
    assert.deepEqual(seen("ipvs"), [5000, 6000, true]);
    assert.deepEqual(seen("nftables"), [7000, 8000, false]);
    assert.deepEqual(seen("ipvs", ""), [30_000, 0, false]);
    assert.deepEqual(seen("nftables", ""), [30_000, 1000, false]);
    assert.deepEqual(seen("iptables", "iptables: {minSyncPeriod: 0s}"), [30_000, 1000, false]);
  });

  it("leave explicit zeroes of pointer fields in force", () => {
    const config = resolve(
      "iptables: {masqueradeBit: 0, localhostNodePorts: false}\noomScoreAdj: 0\nconntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s}",
    );
    assert.deepEqual(
      [config.iptables, config.oomScoreAdj, config.conntrack.maxPerCore, config.conntrack.tcpEstablishedTimeoutMs],
      [{ masqueradeBit: 0, localhostNodePorts: false }, 0, 0, 0],
    );
    assert.equal(config.conntrack.tcpCloseWaitTimeoutMs, 3_600_000);
  });

  it("split the cluster's prefixes at commas without trimming", () => {
    assert.deepEqual(resolve('clusterCIDR: "10.0.0.0/8, fd00::/8"').detectLocal.clusterCIDRs, [
      "10.0.0.0/8",
      " fd00::/8",
    ]);
  });

  it("keep the form of a flush frequency that was set", () => {
    assert.equal(resolve("logging: {flushFrequency: 0}").logging.flushFrequencyAsText, true);
    const { flushFrequencyAsText, flushFrequencyMs } = resolve("logging: {flushFrequency: 7000000}").logging;
    assert.deepEqual([flushFrequencyAsText, flushFrequencyMs], [false, 7]);
  });

  it("of the platform choose mode, local traffic and, for nftables, the primary addresses", () => {
    const platform = (body: string) => {
      const config = applyPlatformDefaults(resolve(body));
      return [config.mode, config.detectLocalMode, config.nodePortAddresses];
    };
    assert.deepEqual(platform(""), ["iptables", "ClusterCIDR", []]);
    assert.deepEqual(platform("mode: nftables\ndetectLocalMode: NodeCIDR"), ["nftables", "NodeCIDR", ["primary"]]);
    assert.deepEqual(platform("mode: nftables\nnodePortAddresses: [10.0.0.0/8]")[2], ["10.0.0.0/8"]);
  });
});

/** Drops undefined and null members and writes durations as text, so that documents can be compared. */
function stable(value: unknown): string {
  return JSON.stringify(value, (_, member) => (typeof member === "bigint" ? `${member}ns` : (member ?? undefined)));
}
