import assert from "node:assert/strict";
import { test } from "node:test";
import { servicePortName } from "../../../model/service-port-name.ts";
import { makeEndpoint } from "../../../model/testing/records.ts";
import { endpointChain, servicePortChains } from "./chain-names.ts";

test("service chains have upstream's names (reference iptables.md §3)", () => {
  const cases = [
    [servicePortName("default", "kubernetes", "https", "TCP"), "KUBE-SVC-NPX46M4PTMTKRN6Y"],
    [servicePortName("kube-system", "kube-dns", "dns", "UDP"), "KUBE-SVC-TCOU7JCQXEZGVUNU"],
    [servicePortName("kube-system", "kube-dns", "dns-tcp", "TCP"), "KUBE-SVC-ERIFXISQEP7F7OF4"],
    [servicePortName("default", "my-svc", "", "TCP"), "KUBE-SVC-YTHR5N3CTTRMKUWU"],
    [servicePortName("ns1", "svc1", "p80", "TCP"), "KUBE-SVC-XPGD46QRK7WJZT7O"],
  ] as const;
  for (const [name, expected] of cases) assert.equal(servicePortChains(name).cluster, expected);
});

test("the four service chains share one hash", () => {
  const chains = servicePortChains(servicePortName("ns1", "svc1", "p80", "TCP"));
  assert.deepEqual(chains, {
    cluster: "KUBE-SVC-XPGD46QRK7WJZT7O",
    local: "KUBE-SVL-XPGD46QRK7WJZT7O",
    external: "KUBE-EXT-XPGD46QRK7WJZT7O",
    firewall: "KUBE-FW-XPGD46QRK7WJZT7O",
  });
});

test("endpoint chains have upstream's names, IPv6 hashed with brackets", () => {
  const cases = [
    [servicePortName("ns1", "svc1", "p80", "TCP"), makeEndpoint("10.180.0.1", 80), "KUBE-SEP-SXIVWICOYRO3J4NJ"],
    [
      servicePortName("kube-system", "kube-dns", "dns", "UDP"),
      makeEndpoint("10.244.0.7", 53),
      "KUBE-SEP-232DQYSHL5HNRYWJ",
    ],
    [
      servicePortName("default", "my-svc", "", "TCP"),
      makeEndpoint("fd00:10:244::5", 8080),
      "KUBE-SEP-UV2W2JVYYQPBYZQF",
    ],
  ] as const;
  for (const [name, ep, expected] of cases) assert.equal(endpointChain(name, ep), expected);
});
