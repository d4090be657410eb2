/** Services, slices and flows that tests give to a {@link ProxierBench}. */
import assert from "node:assert/strict";
import type { Flow } from "../../../net/flow.ts";
import { parseIpAddress } from "../../../net/ip.ts";
import type { ProxierBench } from "./proxier-bench.ts";
import { serviceRecord } from "./records.ts";

/** Adds a Service with one TCP port and no endpoints. */
export function addService(bench: ProxierBench, name: string, changes = {}): void {
  bench.proxier.onService({ kind: "add", object: serviceRecord(name, changes) });
}

/** A client's flow to the first Service's address, answered by this endpoint. */
export function udpFlow(replier: string, sourcePort = 1): Flow {
  const ip = (text: string) => parseIpAddress(text) ?? assert.fail(text);
  return {
    protocol: "UDP",
    sourceIP: ip("10.9.9.9"),
    sourcePort,
    destinationIP: ip("10.0.0.1"),
    destinationPort: 80,
    replySourceIP: ip(replier),
    replySourcePort: 8080,
    replyDestinationIP: ip("10.9.9.9"),
    replyDestinationPort: sourcePort,
  };
}

/** Changes that turn a Service, or a slice, into a UDP one. */
export const UDP = { ports: [{ name: "p", protocol: "UDP", port: 80, nodePort: 0 }] } as const;
export const UDP_SLICE = { ports: [{ name: "p", protocol: "UDP", port: 8080 }] } as const;
