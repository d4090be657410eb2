/**
 * Every class of scheduler × kind of address × traffic policy × client position × protocol × family: who answers is among
 * those who may, and sees the right source; those that spread reach everybody, those that hash give a client one pod. The
 * virtual servers of a running node change their scheduler in place.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ask, outcomes } from "../flows/asking.ts";
import { FAMILIES, type ServiceSpec } from "../flows/cluster-objects.ts";
import { DESTINATIONS, expected, POSITIONS, type Policy, type ServiceFacts } from "../flows/expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "../flows/flow-network.ts";
import { HeldConnection } from "../flows/held-connection.ts";
import { protocolsOf } from "../flows/modes.ts";

/** By what they do with requests that end at once. */
const SCHEDULERS = {
  spreading: ["wrr", "lc", "wlc", "sed", "nq"],
  /** By the client's address (`mh` with its port), or the service's. */
  hashing: ["sh", "dh", "lblc", "lblcr"],
  hashingPorts: ["mh"],
} as const;

const PODS = ["local-1", "local-2", "remote-1"] as const;

const services: readonly (ServiceSpec & ServiceFacts)[] = (["Cluster", "Local"] satisfies Policy[]).map(
  (external, index) => ({
    name: `policy-${external.toLowerCase()}`,
    number: index + 1,
    external,
    internal: "Cluster",
    pods: PODS,
    endpoints: PODS,
    spec: { externalTrafficPolicy: external },
  }),
);

interface Cell {
  readonly title: string;
  readonly allowed: readonly string[];
  readonly got: readonly string[];
}

async function cells({ probers }: FlowNetwork, count: number): Promise<Cell[]> {
  const all = services.flatMap((service) =>
    FAMILIES.flatMap((family) =>
      protocolsOf("ipvs").flatMap((protocol) =>
        DESTINATIONS.flatMap((to) =>
          POSITIONS.map(async (from): Promise<Cell> => {
            const wanted = expected("ipvs", service, { to, from, family, protocol, number: service.number });
            assert.ok(wanted.kind === "answers");
            const answers = await ask(probers[from], addressOf(service.number, to, protocol, family), count);
            return {
              title: `${service.name}: ${from} to ${to}, ${protocol} ${family}`,
              allowed: [...wanted.peers].map(([pod, peer]) => `${pod} saw ${peer}`).sort(),
              got: outcomes(answers),
            };
          }),
        ),
      ),
    ),
  );
  return await Promise.all(all);
}

async function use(network: FlowNetwork, scheduler: string): Promise<void> {
  const { daemon } = network;
  const file = join(daemon.folder, "config.json");
  await daemon.stop();
  const config = JSON.parse(readFileSync(file, "utf8"));
  writeFileSync(file, JSON.stringify({ ...config, ipvs: { ...config.ipvs, scheduler } }));
  const startedAt = Date.now();
  daemon.spawn();
  await daemon.synced(startedAt);
  const { stdout } = await daemon.namespace.exec(["cat", "/proc/net/ip_vs"]);
  const used = new Set([...stdout.matchAll(/^(?:TCP|UDP|SCTP) +\S+ (\S+)/gm)].map(([, name]) => name));
  assert.deepEqual([...used], [scheduler]);
}

test("every class of scheduler", async (t) => {
  const network = await flowNetwork(t, "ipvs", services);
  const client = network.topology.namespace("client-pod");
  const held = await HeldConnection.open(client, addressOf(1, "cluster IP", "TCP", "IPv4"));
  for (const [kind, names] of Object.entries(SCHEDULERS)) {
    for (const scheduler of names) {
      await t.test(`${scheduler} (${kind})`, async () => {
        await use(network, scheduler);
        const found = await cells(network, 6);
        const wrong = found.filter(
          ({ allowed, got }) => got.length === 0 || got.some((outcome) => !allowed.includes(outcome)),
        );
        assert.deepEqual(wrong, []);
        const met = new Set(found.flatMap(({ got }) => got.map((outcome) => outcome.split(" ")[0])));
        if (kind === "spreading") assert.deepEqual([...met].sort(), [...PODS]);
        if (kind === "hashing")
          assert.deepEqual(
            found.filter(({ got }) => got.length !== 1),
            [],
          );
      });
    }
  }
  assert.match(await held.use(), /^(local|remote)-/, "a connection outlives ten changes of the scheduler");
});
