/** Programs that are attached when a process of any mode starts, at any cgroup: whose they are decides what becomes of them. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { assemble } from "../../../testkit/fakes/bpf/encode.ts";
import { BpfMachine, memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { encode } from "../../kernel/bpf/layout.ts";
import { detachStale } from "./node-pins.ts";
import { memoryMaps, VALIDITY } from "./socket-balancer/maps.ts";

const SECOND = 1_000_000_000n;
const NOW = 5_000n * SECOND;
const [OWN_NETNS, OTHER_NETNS] = [7n, 8n];
const [THIS_START, EARLIER] = [40n, 30n];
const FOLDER = "/bpf/kube-proxy-ts/7";
const HOOKS = ["connect4", "recvmsg4"] as const;
const CGROUPS = new Map([
  ["/cgroup", 5n],
  ["/elsewhere", 6n],
]);

/** Programs of a process with this in its map are attached. @returns how many are left, and the log. */
function start(t: TestContext, value: Uint8Array | undefined, { cgroup = "/cgroup", isKept = false } = {}) {
  const machine = new BpfMachine(CGROUPS);
  const [earlier, bpf] = [memoryBpf(machine), memoryBpf(machine)];
  const { validUntil, flows } = memoryMaps("IPv4", 8);
  const definition = { ...validUntil, valueSize: value?.length ?? 8 };
  const maps = [earlier.createMap(definition), earlier.createMap(flows)];
  if (value !== undefined) maps[0]?.update(new Uint8Array(4), value);
  // recvmsg does not use the first map.
  for (const [hook, used] of [
    ["connect4", value === undefined ? [] : [definition, flows]],
    ["recvmsg4", value === undefined ? [] : [flows]],
  ] as const) {
    const code = [
      ...used.map(({ name: map }) => ({ kind: "load-map", destination: "r1", map }) as const),
      ...([{ kind: "alu", operation: "mov", bits: 64, destination: "r0", source: 1 }, { kind: "exit" }] as const),
    ];
    const link = earlier.attach(earlier.loadProgram(assemble(`kpts_${hook}`, code, used), hook, maps), hook, cgroup);
    if (!isKept) continue;
    if (bpf.pins.list(`${FOLDER}/IPv4/links`) === undefined) bpf.pins.makeFolder(`${FOLDER}/IPv4/links`);
    bpf.pins.pin(link, `${FOLDER}/IPv4/links/kpts_${hook}`);
  }
  t.after(() => earlier.end());
  const log: LogLine[] = [];
  const by = () => ({ owner: OWN_NETNS, start: THIS_START, nowNs: NOW });
  const asksLater = detachStale(bpf, recordingLogger(log), by, FOLDER);
  const left = HOOKS.flatMap((hook) => machine.attached(hook, cgroup)).length;
  return { left, asksLater, log: log.map(({ level, message }) => `${level}: ${message}`) };
}

const validity = (values: Partial<Record<keyof typeof VALIDITY.fields, bigint>>) =>
  encode(VALIDITY, {
    until: NOW + 500n * SECOND,
    owner: OWN_NETNS,
    beat: NOW - 26n * SECOND,
    start: EARLIER,
    ...values,
  });
const DETACHED = "warn: Detached programs of an earlier process that decided at the socket";
const FORMER = new Uint8Array(BigUint64Array.of(NOW + SECOND).buffer);

for (const [whose, value, left, asksLater = false] of [
  ["of a dead process of this network namespace are detached", validity({}), 0],
  ["of a process of this network namespace that has ended are detached", validity({ beat: 0n }), 0],
  ["of one that has just reported stay for now", validity({ beat: NOW - 24n * SECOND }), 2, true],
  ["of this process stay", validity({ start: THIS_START, beat: 0n }), 2],
  ["of a process of another network namespace stay while in force", validity({ owner: OTHER_NETNS, beat: 0n }), 2],
  [
    "of another network namespace that decide nothing any more go",
    validity({ owner: OTHER_NETNS, until: NOW - 1n }),
    0,
  ],
  ["of an earlier version stay while in force", FORMER, 2],
  ["of an earlier version that decide nothing any more go", new Uint8Array(BigUint64Array.of(NOW - 1n).buffer), 0],
  ["of a process that has only begun stay", validity({ owner: OTHER_NETNS, until: 0n }), 2],
  ["of which nothing says whose they are stay", undefined, 2],
] as const) {
  test(`programs ${whose}, at any cgroup`, (t) => {
    for (const cgroup of CGROUPS.keys()) {
      const outcome = start(t, value, { cgroup });
      assert.deepEqual([outcome.left, outcome.asksLater], [left, asksLater]);
      assert.deepEqual(outcome.log.includes(DETACHED), left === 0);
    }
  });
}

test("programs that are pinned in the folder of this network namespace stay", (t) => {
  assert.deepEqual(start(t, validity({}), { isKept: true }), { left: 2, asksLater: false, log: [] });
});
