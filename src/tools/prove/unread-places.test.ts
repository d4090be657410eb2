import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { classesOf } from "./classes.ts";
import { fateText } from "./fate.ts";
import { rootClasses } from "./proof.ts";
import { ruleFates, rulesSide } from "./sides.ts";

const OWN = [ip("10.200.0.2"), ip("127.0.0.1")];
const ROUTES = [
  { cidr: "10.1.0.0/16", device: "cni0" },
  { cidr: "0.0.0.0/0", device: "eth0" },
];

/** A Service at 10.96.0.1 leads to a pod, and one at 10.96.0.2 to another machine. */
function rules(...past: readonly string[]): Dump[] {
  const place = { family: "ip", table: "other" };
  const base = (name: string, hook: string) => ({
    chain: { ...place, name, type: "nat", hook, prio: -100, policy: "accept" },
  });
  const led = [
    ["10.96.0.1", "10.1.0.5"],
    ["10.96.0.2", "10.9.0.5"],
  ].flatMap(([from, to]) =>
    ["in", "out"].map((chain) => ({
      rule: {
        ...{ ...place, chain },
        expr: [
          { match: { op: "==", left: { payload: { protocol: "ip", field: "daddr" } }, right: from } },
          { dnat: { addr: to } },
        ],
      },
    })),
  );
  const objects = [{ table: { family: "ip", name: "other" } }, base("in", "prerouting"), base("out", "output"), ...led];
  const what = `a program at ${past[0]}`;
  return [
    { kind: "nftables", objects },
    { kind: "unread", what, past: { comesIn: past.slice(0, 1), goesOut: past } },
  ];
}

/** What is said of the packets from this place. */
function said(dumps: readonly Dump[], inInterface: string, bridgePort: string, destination: string): string {
  const { enter } = rulesSide("rules", dumps, "IPv4", OWN, { routes: ROUTES });
  const fates = ruleFates(dumps, "IPv4", nodeFacts({ addresses: OWN, routes: ROUTES, isComplete: true }));
  const subject = {
    fateOf(...[packet, asked]: Parameters<typeof fates.fateOf>) {
      enter?.(packet, asked);
      return fates.fateOf(packet, asked);
    },
  };
  for (const { packets, fates: found, unproved } of classesOf("IPv4", rootClasses("IPv4", OWN), [subject])) {
    const isPort = packets.bridgePort.has(bridgePort) && packets.protocol.has("tcp") && packets.destinationPort.has(80);
    if (packets.inInterface.has(inInterface) && packets.destination.has(destination) && isPort)
      return unproved ?? fateText(found[0] ?? new Map());
  }
  return "in no class";
}

describe("what meets a program at a device is not proved, and the rest is", () => {
  const cases: readonly (readonly [past: readonly string[], from: string, port: string, to: string, said: RegExp])[] = [
    [["eth0"], "eth0", "", "10.96.0.1", /^packets that come in by eth0 meet a program at eth0$/],
    [["eth0"], "cni0", "veth1", "10.96.0.2", /^packets that go out by eth0 meet a program at eth0$/],
    [["eth0"], "cni0", "veth1", "10.96.0.1", /^to 10\.1\.0\.5:\d+$/],
    [["eth0"], "", "", "10.96.0.1", /^to 10\.1\.0\.5:\d+$/],
    [["eth0"], "", "", "10.9.0.9", /^packets that go out by eth0 meet/],
    [["veth1", "cni0"], "cni0", "veth1", "10.96.0.2", /^packets that come in by veth1 meet a program at veth1$/],
    [["veth1", "cni0"], "cni0", "veth2", "10.96.0.2", /^to 10\.9\.0\.5:\d+$/],
    [["veth1", "cni0"], "eth0", "", "10.96.0.1", /^packets that go out by cni0 meet a program at veth1$/],
    [["lo"], "", "", "10.200.0.2", /^packets that go out by lo meet a program at lo$/],
    [["lo"], "eth0", "", "10.200.0.2", /^left alone$/],
  ];
  for (const [past, from, port, to, expected] of cases)
    test(`${past.join()}: ${from} ${port} to ${to}`, () =>
      assert.match(said(rules(...past), from, port, to), expected));
});
