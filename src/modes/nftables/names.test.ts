import assert from "node:assert/strict";
import { test } from "node:test";
import { endpoint } from "../../../test/conformance/example-clusters.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { endpointNames, servicePortChains } from "./names.ts";

test("service chains have upstream's names (reference nftables.md §5)", () => {
  const cases = [
    [servicePortName("default", "kubernetes", "https", "TCP"), "service-2QRHZV4L-default/kubernetes/tcp/https"],
    [servicePortName("kube-system", "kube-dns", "dns", "UDP"), "service-FY5PMXPG-kube-system/kube-dns/udp/dns"],
    [servicePortName("ns1", "svc1", "", "TCP"), "service-6KJ5P52A-ns1/svc1/tcp/"],
  ] as const;
  for (const [name, expected] of cases) assert.equal(servicePortChains(name).cluster, expected);
});

test("endpoint names replace colons, and long ones are cut to 240 characters", () => {
  const ns5 = endpointNames(servicePortName("ns5", "svc5", "p80", "TCP"), endpoint("10.180.0.3", 80));
  assert.deepEqual(ns5, {
    chain: "endpoint-GTK6MW7G-ns5/svc5/tcp/p80__10.180.0.3/80",
    affinitySet: "affinity-GTK6MW7G-ns5/svc5/tcp/p80__10.180.0.3/80",
  });
  const v6 = endpointNames(servicePortName("default", "web", "", "SCTP"), endpoint("2001:db8::10", 8443));
  assert.equal(v6.chain, "endpoint-BYLGFBGC-default/web/sctp/__2001.db8..10/8443");
  const long = endpointNames(
    servicePortName("n".repeat(63), "s".repeat(63), "p".repeat(63), "TCP"),
    endpoint("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", 65535),
  );
  const base = long.chain.slice("endpoint-".length);
  assert.equal(base.length, 240);
  assert.ok(base.startsWith("RJADX5RE-nnn"));
  assert.ok(base.endsWith("__2001.db8.aaaa.bbbb.cccc.dddd.ee..."));
});
