/** Which network namespaces are judged to be pods, from what the kernel says of them; test/kernel/flows has real ones. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { FakeClock } from "../../agent/sync/testing/fake-clock.ts";
import type { OtherNamespace } from "../../kernel/linked-namespaces.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import { ip, makeEndpoint } from "../../model/testing/records.ts";
import type { Cidr } from "../../net/ip.ts";
import { PodNamespaces } from "./pod-namespaces.ts";
import { memoryMaps } from "./socket-balancer/maps.ts";

const POD = 21n;
const KUBELET = 77n;
const word = (value: bigint): Uint8Array => new Uint8Array(BigUint64Array.of(value).buffer);
const VETH = { name: "veth1", index: 5 };
const BRIDGE = { name: "cni0", index: 4 };
const linked = (...addresses: string[]) => ({ here: [VETH, BRIDGE], addresses: addresses.map((one) => ip(one)) });

function rig({
  networks = ["10.180.0.0/16"],
  detector = { kind: "none" } as LocalTrafficDetector,
  isForHostOnly = false,
} = {}) {
  const bpf = memoryBpf();
  const { ledNamespaces, otherNamespaces, flows } = memoryMaps("IPv4", 8);
  const maps = {
    ledNamespaces: bpf.createMap(ledNamespaces),
    otherNamespaces: bpf.createMap(otherNamespaces),
    flows: bpf.createMap(flows),
  };
  const log: LogLine[] = [];
  const clock = new FakeClock();
  const state = {
    devices: [linked("10.180.0.2")],
    route: 4,
    obstacle: undefined as string | undefined,
    onChange: () => {},
  };
  let reads = 0;
  const pods = new PodNamespaces({
    obstacle: () => state.obstacle,
    others: async (): Promise<OtherNamespace[]> => {
      reads++;
      return [{ path: "/run/netns/pod", cookie: POD, devices: state.devices }];
    },
    routes: async (addresses) => new Map(addresses.map((address) => [address, state.route])),
    watch: (onChange, signal) => {
      state.onChange = onChange;
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    },
    podCgroups: () => new Set([KUBELET]),
    networks: networks as Cidr[],
    detector,
    isForHostOnly,
    clock,
    log: recordingLogger(log),
  });
  const endpoints = new Map([["web", [{ ...makeEndpoint("172.16.0.9", 80), isLocal: true }]]]);
  pods.add({ family: "IPv4", maps: () => maps, endpoints: () => endpoints });
  const led = (): boolean => maps.ledNamespaces.entries().length === 1;
  const judged = async (): Promise<string> => {
    await pods.look();
    return led() ? "led" : (/1 because ([^,)]*(?:, and no pod network is known)?)/.exec(pods.text)?.[1] ?? pods.text);
  };
  const report = (cgroup = 0n): void => maps.otherNamespaces.update(word(POD), word(cgroup));
  return { pods, state, maps, endpoints, judged, report, led, log, clock, reads: () => reads };
}

const NO_DEVICE = "this node has no device to them: by their own devices such as SR-IOV they reach no Service";

const ROWS: readonly [string, Parameters<typeof rig>[0], Partial<ReturnType<typeof rig>["state"]>, string][] = [
  ["a pod at a bridge", {}, {}, "led"],
  ["a pod at a link of its own", {}, { route: 5 }, "led"],
  [
    "an address of a pod, whose route leaves elsewhere",
    {},
    { route: 9 },
    "the route to its address leaves by another device",
  ],
  ["no address of a pod", {}, { devices: [linked("172.17.0.2", "fd00::1")] }, "it has no address of a pod"],
  ["no device of the node's", {}, { devices: [] }, NO_DEVICE],
  ["an endpoint outside of the pod network", {}, { devices: [linked("172.16.0.9")] }, "led"],
  [
    "nothing is known of pod networks",
    { networks: [] },
    {},
    "it is neither an endpoint nor in kubelet's cgroup, and no pod network is known",
  ],
  ["the bridge of detectLocalMode", { detector: { kind: "interface", name: "cni0" } }, { route: 9 }, "led"],
  ["its prefix", { detector: { kind: "interface-prefix", prefix: "vet" } }, { devices: [linked()] }, "led"],
  ["another device", { detector: { kind: "interface", name: "docker0" } }, {}, "its device is not of detectLocalMode"],
];

for (const [what, options, state, wanted] of ROWS) {
  test(`${what}: ${wanted}`, async () => {
    const subject = rig(options);
    Object.assign(subject.state, state);
    subject.report();
    assert.equal(await subject.judged(), wanted);
  });
}

test("where no pod network is known, kubelet's cgroup tells a pod, and what was led stays so while it is linked", async () => {
  const { judged, report, maps, state } = rig({ networks: [] });
  report(KUBELET);
  assert.equal(await judged(), "led");
  maps.otherNamespaces.delete(word(POD));
  assert.equal(await judged(), "led");
  state.devices = [];
  await judged();
  assert.equal(maps.ledNamespaces.entries().length, 0);
});

test("what cannot be entered is not led, which is said once, and its end", async () => {
  const { judged, pods, state, log } = rig();
  state.obstacle = "EPERM";
  for (let looks = 0; looks < 2; looks++) assert.equal(await judged(), "for the node and no pod");
  assert.equal(pods.problem, "EPERM");
  state.obstacle = undefined;
  assert.equal(await judged(), "led");
  assert.deepEqual(
    log.map(({ message }) => message),
    ["Pods take the rules: EPERM", "Connections of pods are decided at the socket now"],
  );
});

test("with hostNamespaceOnly no pod is led, and nothing is read", async () => {
  const { judged, reads } = rig({ isForHostOnly: true });
  assert.deepEqual([await judged(), reads()], ["for the node alone", 0]);
});

test("events bring a look, as do reports of the programs, more and more seldom while they lead to nothing", async () => {
  const { pods, state, clock, led, report, maps, reads } = rig();
  const stop = new AbortController();
  const watching = pods.watch(stop.signal);
  state.devices = [];
  await clock.advance(100);
  assert.deepEqual([led(), reads()], [false, 1]);
  state.devices = [linked("10.180.0.2")];
  for (let burst = 0; burst < 10; burst++) state.onChange();
  await clock.advance(100);
  assert.deepEqual([led(), reads()], [true, 2], "one look for all");
  state.devices = [];
  state.onChange();
  await clock.advance(100);
  assert.equal(led(), false);
  report();
  state.devices = [linked("10.180.0.2")];
  await clock.advance(1_000);
  assert.equal(led(), true, "a report is enough");
  const before = reads();
  for (let second = 0; second < 60; second++) {
    // Processes that make network namespaces all the time.
    maps.otherNamespaces.update(word(1_000n + BigInt(second)), word(0n));
    await clock.advance(1_000);
  }
  assert.ok(reads() - before < 10, `${reads() - before} looks in a minute`);
  stop.abort();
  await watching;
});

test("a pod that comes back has as many flows as it left", async () => {
  const { maps, judged, state } = rig();
  await judged();
  const flow = new Uint8Array(maps.flows.definition.valueSize);
  flow.set(word(POD), 16);
  for (const socket of [1n, 2n]) maps.flows.update(new Uint8Array([...word(socket), ...word(0n)]), flow);
  state.devices = [];
  await judged();
  state.devices = [linked("10.180.0.2")];
  await judged();
  assert.deepEqual(maps.ledNamespaces.lookup(word(POD)), word(2n));
});
