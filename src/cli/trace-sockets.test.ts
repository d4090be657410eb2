/** The step before the packet that `trace` reads of the pinned maps. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LedSocket } from "../dataplane/inspection.ts";
import { ip } from "../model/testing/records.ts";
import type { PacketQuestion } from "../trace/packet.ts";
import { liveStep } from "./trace-sockets.ts";

const LED: LedSocket = { clients: "all", isRefused: false, endpoints: ["10.1.0.1:80"], affinitySeconds: 0 };
const sockets = new Map<string, LedSocket>([
  ["TCP 10.96.0.1:80", LED],
  ["TCP *:30080", { ...LED, clients: "host" }],
  ["TCP 10.96.0.2:80", { ...LED, isRefused: true, endpoints: [] }],
  ["UDP 10.96.0.2:80", { ...LED, isRefused: true, endpoints: [] }],
  ["TCP 10.96.0.3:80", { ...LED, clients: "none" }],
]);

function step(
  protocol: "tcp" | "udp",
  destination: string,
  destinationPort: number,
  more: Partial<PacketQuestion> = {},
) {
  const source = ip("192.168.0.2");
  const ends = { source, sourcePort: undefined, destination: ip(destination), destinationPort };
  return liveStep({ sockets }, { family: "IPv4", protocol, inInterface: "", ...ends, ...more }, [source]);
}

test("the step says what the maps hold, and leaves what they leave", () => {
  assert.match(
    step("tcp", "10.96.0.1", 80) ?? "",
    /^decided at connect\(\): .*, 10\.96\.0\.1:80 leads to 10\.1\.0\.1:80;/,
  );
  assert.match(step("tcp", "192.168.0.2", 30_080) ?? "", /leads to 10\.1\.0\.1:80; leads the host alone;/);
  assert.equal(step("tcp", "192.168.0.9", 30_080), undefined, "no address of the node");
  assert.match(step("tcp", "10.96.0.2", 80) ?? "", /10\.96\.0\.2:80 is refused;/);
  const ofPod = step("tcp", "192.168.0.2", 30_080, { inInterface: undefined });
  for (const left of [step("udp", "10.96.0.2", 80), step("tcp", "10.96.0.3", 80), ofPod]) {
    assert.match(left ?? "", /^at connect\(\) nothing is decided/);
  }
  assert.equal(step("tcp", "10.96.0.1", 80, { state: "established" }), undefined);
  assert.equal(step("tcp", "10.96.0.1", 81), undefined);
});
