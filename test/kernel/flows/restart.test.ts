/** The daemon is killed at any moment and comes back: the rules stay, connections live, nothing is lost or doubled. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { defaultClusterCidr, nodeA } from "../../../testkit/net/topology-spec.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { clusterOf, FAMILIES, type Family, type ServiceSpec } from "./cluster-objects.ts";
import { end, endAndCheck } from "./ending.ts";
import { answersOf } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { MODES, MODES_AND_LAYOUTS, type Mode, protocolsOf, traitsOf } from "./modes.ts";
import { askSteadily, assertAlive, holdConnections } from "./steady-clients.ts";

const STABLE = 1;
const stable: ServiceSpec = { name: "stable", number: STABLE, endpoints: ["local-1", "remote-1"] };
/** Enough services that a sync takes a while. */
const others = Array.from(
  { length: 60 },
  (_, index): ServiceSpec => ({
    name: `other-${index}`,
    number: index + 2,
    endpoints: ["local-1", "local-2", "remote-1"],
  }),
);
const home = [stable, ...others];
/** Services that only some variants have, so that a later daemon finds rules that are no longer needed. */
const extras = others
  .slice(0, 20)
  .map((service) => ({ ...service, name: `extra-${service.name}`, number: service.number + 60 }));
/** Clusters that differ from each other in services, endpoints and kinds of rules. */
const variants: readonly (readonly ServiceSpec[])[] = [
  [stable, ...others.slice(0, 30), ...extras],
  [stable, ...others.map((service) => ({ ...service, endpoints: ["local-2"] as const }))],
  [stable, ...others.map((service) => ({ ...service, spec: { sessionAffinity: "ClientIP" } }))],
  [stable],
  [stable, ...others.map((service) => ({ ...service, endpoints: [] })), ...extras],
];

/** Shows only the lines that differ: the whole is long. */
function assertEqualRules(actual: string, expected: string, when: string): void {
  const [found, wanted] = [actual.split("\n"), expected.split("\n")];
  const [isThere, isWanted] = [new Set(found), new Set(wanted)];
  const added = found.filter((line) => !isWanted.has(line));
  const lost = wanted.filter((line) => !isThere.has(line));
  assert.deepEqual({ added, lost }, { added: [], lost: [] }, when);
  assert.equal(actual, expected, when);
}

async function killAndRestart(network: FlowNetwork, mode: Mode): Promise<void> {
  const { daemon } = network;
  const rules = traitsOf[mode].rules;
  const before = await rules(daemon);
  const usedWhileDown = await holdConnections(network, STABLE);
  const usedAfterwards = await holdConnections(network, STABLE);
  const stopAsking = askSteadily(network, STABLE);
  assert.equal(await daemon.stop("SIGKILL"), "SIGKILL");
  await sleep(100);
  assertEqualRules(await rules(daemon), before, "rules right after the kill");
  await assertAlive(usedWhileDown);
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  assertEqualRules(await rules(daemon), before, "rules after the restart");
  await assertAlive(usedAfterwards);
  assert.deepEqual(await stopAsking(), []);
}

/** A daemon that carries the traffic takes it along; its leftovers lead nowhere and must not be in the way. */
async function takeOver(network: FlowNetwork, mode: Mode): Promise<void> {
  const { daemon, probers } = network;
  const { rules } = traitsOf[mode];
  const before = await rules(daemon);
  assert.equal(await daemon.stop("SIGKILL"), "SIGKILL");
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  assertEqualRules(await rules(daemon), before, "rules after the restart");
  const expected = (family: Family) => answersOf(["local-1", "remote-1"], false, "pod", family);
  const differences = FAMILIES.flatMap((family) =>
    protocolsOf(mode).map((protocol) =>
      differenceFrom(expected(family), probers.pod, addressOf(STABLE, "cluster IP", protocol, family)),
    ),
  );
  assert.deepEqual(
    (await Promise.all(differences)).filter((line) => line !== undefined),
    [],
  );
}

/** Kills at moments spread over start and syncs, each time with another cluster in the folder. */
async function killAtAnyMoment(network: FlowNetwork, mode: Mode): Promise<void> {
  const { daemon } = network;
  const { rules } = traitsOf[mode];
  const expected = await rules(daemon);
  const held = await holdConnections(network, STABLE);
  const stopAsking = askSteadily(network, STABLE);
  const moments: number[] = [];
  for (const variant of variants) {
    // While it runs, then during its next start.
    daemon.writeObjects(clusterOf(variant));
    for (const limit of [300, 900]) {
      const moment = Math.round(Math.random() * limit);
      moments.push(moment);
      await sleep(moment);
      await daemon.stop("SIGKILL");
      daemon.spawn();
    }
  }
  daemon.writeObjects(clusterOf(home));
  await daemon.stop("SIGKILL");
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  assertEqualRules(await rules(daemon), expected, `killed ${moments.join(", ")} ms after each start or change`);
  await assertAlive(held);
  assert.deepEqual(await stopAsking(), [], `killed ${moments.join(", ")} ms after each start or change`);
}

/** For a mode in another layout, which has no network of its own in shutdown.test.ts. */
async function endTwice(network: FlowNetwork, mode: Mode): Promise<void> {
  const { daemon } = network;
  await endAndCheck(network, mode);
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  daemon.writeObjects(clusterOf([stable, ...extras]));
  await sleep(Math.random() * 100);
  await end(daemon);
}

/** A daemon for a node without a network; what it leaves in the kernel does not depend on one. */
async function bareDaemon(t: TestContext, mode: Mode): Promise<ProxyDaemon> {
  const node = await NetworkNamespace.create(newRunName("bare"));
  t.after(() => node.remove());
  const daemon = ProxyDaemon.prepare(node, {
    hostnameOverride: nodeA.name,
    objects: clusterOf(home),
    config: { mode, clusterCIDR: defaultClusterCidr, ...traitsOf[mode].config },
  });
  t.after(() => daemon.dispose());
  return daemon;
}

async function killInFirstStart(t: TestContext, mode: Mode): Promise<void> {
  const [undisturbed, victim] = await Promise.all([bareDaemon(t, mode), bareDaemon(t, mode)]);
  const moments = [0.1, 0.4, 0.6, 0.8, 1].map((part) => Math.round(100 + part * Math.random() * 800));
  for (const moment of moments) {
    victim.spawn();
    await sleep(moment);
    await victim.stop("SIGKILL");
  }
  for (const daemon of [undisturbed, victim]) daemon.spawn();
  await Promise.all([undisturbed.synced(), victim.synced()]);
  const { rules } = traitsOf[mode];
  assertEqualRules(await rules(victim), await rules(undisturbed), `killed ${moments.join(", ")} ms after each start`);
}

// A sudden end in the middle of a first load in the flat layout: test/kernel/faults/flat-layout.test.ts.
for (const mode of MODES) {
  test(
    `${mode}: killed again and again in its first start, it leaves the same rules in the end`,
    {
      skip: kernelSkip,
    },
    (t) => killInFirstStart(t, mode),
  );
}

for (const mode of MODES_AND_LAYOUTS) {
  test(`${mode}: sudden death`, { skip: kernelSkip }, async (t) => {
    const network = await flowNetwork(t, mode, home);
    if (traitsOf[mode].carriesTraffic) {
      await t.test("a successor takes over from a killed daemon: rules, and clients as soon as it is there", () =>
        takeOver(network, mode),
      );
      return;
    }
    await t.test("rules and connections outlive a killed daemon and its successor's start", () =>
      killAndRestart(network, mode),
    );
    await t.test("killed at any moment, it loses and doubles no rule, and no connection fails", () =>
      killAtAnyMoment(network, mode),
    );
    if (MODES.includes(mode)) return;
    await t.test("SIGTERM ends it with status 0, idle and in its work, and leaves what it has in the kernel", () =>
      endTwice(network, mode),
    );
  });
}
