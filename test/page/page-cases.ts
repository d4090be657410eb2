/** What the tests of the page in a browser have in common: clusters, views, and a look at what is too wide. */
import assert from "node:assert/strict";
import type { TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import { type IpAddress, parseIpAddress } from "../../src/net/ip.ts";
import { examplesAsJson } from "../cli/run-command.ts";
import type { PageOptions } from "./page-daemon.ts";

export const { items } = JSON.parse(examplesAsJson()) as { items: unknown[] };
export const WEB = `service?${new URLSearchParams({ key: "shop/web:http/TCP" })}`;
const FROM_POD = "trace?from=pod&to=10.96.0.10&port=80&protocol=tcp";
/** Each view, and what is there when it has its answer. */
export const VIEWS: readonly (readonly [path: string, ready: string])[] = [
  ["front", "document.querySelector('.tiles')"],
  ["services", "document.querySelectorAll('tbody tr').length > 3"],
  [WEB, "document.querySelector('svg.picture')"],
  ["connections", "document.querySelectorAll('main tbody tr').length > 3"],
  [FROM_POD, "document.querySelector('.steps .fate')"],
  ["syncs", "document.querySelector('.syncs > li')"],
  ["node", "document.querySelector('.problems li')"],
];

export function manyServices(count: number): unknown[] {
  return Array.from({ length: count }, (_, index) => ({
    ...{ apiVersion: "v1", kind: "Service", metadata: { namespace: "n", name: `s${index}` } },
    spec: { clusterIP: `10.96.${(index >> 8) & 255}.${index & 255}`, ports: [{ port: 80 }] },
  }));
}

export function thousandEndpoints(): unknown[] {
  const labels = { "kubernetes.io/service-name": "web" };
  const slices = [0, 1, 2, 3].map((part) => ({
    ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
    ...{ metadata: { namespace: "shop", name: `web-${part}`, labels }, ports: [{ name: "http", port: 8080 }] },
    endpoints: Array.from({ length: 250 }, (_, index) => ({
      addresses: [`10.180.${part}.${index}`],
      nodeName: `ip-10-0-${part}-${index % 40}.eu-central-1.compute.internal`,
      zone: `zone-${part}`,
      conditions: { ready: index % 50 !== 3 },
      targetRef: { kind: "Pod", namespace: "shop", name: `web-${part}-${index}` },
    })),
  }));
  const metadata = { namespace: "shop", name: "web" };
  const spec = { clusterIP: "10.96.0.10", ports: [{ name: "http", port: 80 }] };
  return [{ apiVersion: "v1", kind: "Service", metadata, spec }, ...slices];
}

export const FLOWS = [1, 2, 3].map((number): TrackedFlow => {
  const client = address("10.180.0.9");
  return {
    ...{ protocol: "TCP", sourceIP: client, sourcePort: 3999 + number },
    ...{ destinationIP: address("10.96.0.10"), destinationPort: 80 },
    ...{ replySourceIP: address("10.180.0.11"), replySourcePort: 8080 },
    ...{ replyDestinationIP: client, replyDestinationPort: 3999 + number },
    ...{ state: number === 3 ? "SYN_SENT" : "ESTABLISHED", isAnswered: number < 3, sent: { packets: 9, bytes: 900 } },
  };
});

function address(text: string): IpAddress {
  return parseIpAddress(text) ?? assert.fail(text);
}

export const TROUBLE: Partial<PageOptions> = {
  failures: [{ subject: "shop/web:http", reason: "no space" }],
  limits: [{ what: "IPv6 services", why: "the kernel has no support for the family" }],
  problems: [{ severity: "warning", message: "A warning", details: "a=b", count: 2, firstMs: 0, lastMs: 0 }],
};

/** The element that reaches furthest to the right. Run in the page. */
export const WIDEST = `[...document.querySelectorAll("main *, header *")].filter((e) => !e.closest(".scroll")).map((e) => [e.getBoundingClientRect().right, e.tagName + "." + e.className]).sort((a, b) => b[0] - a[0])[0].join(" ")`;
