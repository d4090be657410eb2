/** What happens to a connection at the socket, as `trace` shows it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LedSocket } from "../../contract/inspection.ts";
import { ip } from "../../model/testing/records.ts";
import { walkDumps } from "../../trace/dump/walk-dumps.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { newPacket, type PacketQuestion } from "../../trace/packet.ts";
import { answerOf } from "../../trace/report/answer.ts";
import { oddsText } from "../../trace/report/fate-text.ts";
import { socketChain } from "./socket-chain.ts";

const LED: LedSocket = {
  clients: "all",
  isRefused: false,
  endpoints: ["10.1.0.1:80", "10.1.0.2:80"],
  affinitySeconds: 0,
};
const sockets = new Map<string, LedSocket>([
  ["TCP 10.96.0.1:80", LED],
  ["TCP *:30080", { ...LED, clients: "host" }],
  ["UDP *:30080", LED],
  ["TCP 10.96.0.2:80", { ...LED, isRefused: true, endpoints: [] }],
  ["UDP 10.96.0.2:80", { ...LED, isRefused: true, endpoints: [] }],
  ["TCP 10.96.0.3:80", { ...LED, clients: "none" }],
  ["TCP 10.96.0.4:80", { ...LED, affinitySeconds: 60 }],
]);
const NODE = ip("192.168.0.2");
const POD = ip("10.1.0.1");

function fates(place: string, more: Partial<PacketQuestion> = {}, pods?: Parameters<typeof socketChain>[3]): string[] {
  const [protocol = "", destination = "", port = ""] = place.split(" ");
  const ends = { source: NODE, sourcePort: undefined, destination: ip(destination), destinationPort: Number(port) };
  const packet = newPacket({ family: "IPv4", protocol, inInterface: "", ...ends, ...more });
  const root = walkDumps(
    [socketChain(sockets, [NODE, ip("127.0.0.1")], "sockets", pods)],
    packet,
    nodeFacts({ addresses: [NODE] }),
    {
      knowsClients: false,
      knowsDynamicSets: false,
    },
  );
  const { groups, remembered } = answerOf(root);
  const shares = groups.flatMap((group) => group.shares).map(({ text, odds }) => `${oddsText(odds)} ${text}`);
  return remembered.length > 0 ? ["remembered clients: their endpoint", ...shares] : shares;
}

const LED_FATES = [
  "50.0 % sent to 10.1.0.1:80, from 192.168.0.2 (kept)",
  "50.0 % sent to 10.1.0.2:80, from 192.168.0.2 (kept)",
];
const asIs = (end: string) => [`100.0 % sent to ${end}, from 192.168.0.2 (kept)`];

test("a socket is led, or refused, before there is a packet", () => {
  assert.deepEqual(fates("tcp 10.96.0.1 80"), LED_FATES);
  assert.deepEqual(fates("tcp 192.168.0.2 30080"), LED_FATES);
  assert.deepEqual(fates("tcp 10.96.0.2 80"), [
    "100.0 % refused (connection refused) by connect() sockets: TCP 10.96.0.2:80 has no endpoints",
  ]);
});

test("what sockets leave takes the rules", () => {
  assert.match(fates("tcp 127.0.0.1 30080").join(), /^100\.0 % delivered to a process of the node/, "not at loopback");
  assert.match(
    fates("udp 192.168.0.2 30080").join(),
    /^100\.0 % delivered to a process of the node/,
    "perhaps an answer",
  );
  assert.deepEqual(fates("tcp 192.168.0.9 30080"), asIs("192.168.0.9:30080"), "no address of the node");
  assert.deepEqual(fates("udp 10.96.0.2 80"), asIs("10.96.0.2:80"));
  assert.deepEqual(fates("tcp 10.96.0.3 80"), asIs("10.96.0.3:80"));
  assert.deepEqual(fates("tcp 10.96.0.1 81"), asIs("10.96.0.1:81"));
  assert.deepEqual(fates("tcp 10.96.0.1 80", { state: "established" }), asIs("10.96.0.1:80"));
  for (const origin of ["this-node", "elsewhere"] as const) {
    assert.deepEqual(fates("tcp 10.96.0.1 80", { origin }), asIs("10.96.0.1:80"));
  }
});

test("pods: what leads the host alone is not theirs, and one that gets itself sees itself", () => {
  const ofPod = { source: POD, inInterface: "veth0", origin: "socket" } as const;
  const [first] = fates("tcp 192.168.0.2 30080", ofPod);
  assert.match(first ?? "", /delivered to a process of the node at 192\.168\.0\.2:30080/);
  assert.deepEqual(fates("tcp 10.96.0.1 80", ofPod), [
    "50.0 % sent to 10.1.0.1:80, from 10.1.0.1 (kept)",
    "50.0 % sent to 10.1.0.2:80, from 10.1.0.1 (kept)",
  ]);
});

test("a pod whose network namespace is not led takes the rules; of one that is not seen both ways are shown", () => {
  const ofPod = { source: POD, inInterface: "veth0", origin: "socket" } as const;
  const led = ["50.0 % sent to 10.1.0.1:80, from 10.1.0.1 (kept)", "50.0 % sent to 10.1.0.2:80, from 10.1.0.1 (kept)"];
  const byRules = "100.0 % sent to 10.96.0.1:80, from 10.1.0.1 (kept)";
  for (const [pods, wanted] of [
    [new Map([[POD, true]]), led],
    [new Map([[POD, false]]), [byRules]],
    [new Map(), [byRules, ...led]],
  ] as const) {
    assert.deepEqual(fates("tcp 10.96.0.1 80", ofPod, pods).toSorted(), wanted.toSorted());
    assert.deepEqual(fates("tcp 10.96.0.1 80", {}, pods), LED_FATES, "the node is always led");
  }
  assert.match(fates("tcp 10.96.0.2 80", ofPod, new Map([[POD, false]])).join(), /sent to 10\.96\.0\.2/);
});

test("a client that may be remembered may get its old endpoint", () => {
  assert.deepEqual(fates("tcp 10.96.0.4 80"), ["remembered clients: their endpoint", ...LED_FATES]);
});
