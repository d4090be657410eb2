/** Cluster changes while the daemon runs: new connections follow at once, the others are left alone. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Protocol } from "../../../src/net/protocol.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { type Address, outcomes } from "./asking.ts";
import {
  addressesOf,
  clusterOf,
  FAMILIES,
  type Family,
  PROTOCOLS,
  type ServiceSpec,
  type ServingPod,
  TARGET_PORTS,
} from "./cluster-objects.ts";
import type { Destination, Position } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { HeldConnection } from "./held-connection.ts";
import { ALL_MODES, type Mode, protocolsOf, traitsOf } from "./modes.ts";

/** A change must take effect within a second of its file on a quiet machine; the rest is for a busy one. */
const EFFECT_LIMIT_MS = stretched(6000);
/** One look at a service's answers, while a change is awaited. */
const ATTEMPT_MS = stretched(800);
/** For what must be answered at the first attempt. */
const ANSWER_LIMIT_MS = stretched(8000);
/** For what must not be answered. */
const SILENCE_MS = 300;
/** Length of the daemon's log shown if a check fails. */
const LOG_CHARACTERS = 4000;
/** Over IPv6, TCP may notice a refusal only with its second SYN, a second after the first. */
const REFUSAL_MS = stretched(2500);

/** The current cluster, and the services that the tests change concurrently. */
class LiveCluster {
  readonly mode: Mode;
  readonly network: FlowNetwork;
  readonly #services: Map<string, ServiceSpec>;

  constructor(mode: Mode, network: FlowNetwork, services: readonly ServiceSpec[]) {
    this.mode = mode;
    this.network = network;
    this.#services = new Map(services.map((service) => [service.name, service]));
  }

  set(service: ServiceSpec): void {
    this.#services.set(service.name, service);
    this.#write();
  }

  remove(name: string): void {
    this.#services.delete(name);
    this.#write();
  }

  #write(): void {
    this.network.daemon.writeObjects(clusterOf([...this.#services.values()]));
  }

  /** Makes some requests. @returns the distinct outcomes, pods only by name. */
  async pods(from: Position, target: Address, count: number, timeoutMs: number): Promise<string[]> {
    const answers = await this.network.probers[from].connect({ ...target, count, timeoutMs });
    return [...new Set(answers.map((answer) => (answer.ok ? answer.pod : answer.error)))].sort();
  }

  /** Waits until requests, over all protocols and families, meet exactly these pods; without any, until they are refused. */
  async follows(from: Position, number: number, to: Destination, pods: readonly string[]): Promise<void> {
    await Promise.all(
      FAMILIES.flatMap((family) =>
        protocolsOf(this.mode).map((protocol) => {
          const wanted = pods.length > 0 ? pods : ["refused"];
          return this.#follows(from, { number, to, protocol, family }, wanted);
        }),
      ),
    );
  }

  async #follows(
    from: Position,
    { number, to, protocol, family }: { number: number; to: Destination; protocol: Protocol; family: Family },
    wanted: readonly string[],
  ): Promise<void> {
    const target = addressOf(number, to, protocol, family);
    const end = Date.now() + EFFECT_LIMIT_MS;
    const attemptMs = wanted.includes("refused") ? REFUSAL_MS : wanted.includes("timeout") ? SILENCE_MS : ATTEMPT_MS;
    const ask = () => this.pods(from, target, 20, attemptMs);
    let got = await ask();
    while (got.join() !== wanted.join() && Date.now() < end) {
      await sleep(20);
      got = await ask();
    }
    assert.deepEqual(
      got,
      wanted,
      `${from} to ${to}, ${protocol} over ${family}, ${EFFECT_LIMIT_MS} ms after the change`,
    );
  }
}

const service = (number: number, endpoints: readonly ServingPod[], spec = {}): ServiceSpec => ({
  name: `service-${number}`,
  number,
  endpoints,
  spec,
});
const initial = [
  service(1, ["local-1"]),
  service(3, ["local-1"]),
  service(4, ["local-1"]),
  service(5, ["local-1", "remote-1"]),
  service(7, ["local-1"]),
];

async function endpointChanges(cluster: LiveCluster): Promise<void> {
  for (const [pods, to] of [
    [["local-1", "remote-1"], "cluster IP"],
    [["remote-1"], "load balancer"],
    [["local-2"], "node port"],
    [[], "external IP"],
  ] as const) {
    cluster.set(service(1, pods));
    await cluster.follows("off-node client", 1, to, pods);
  }
}

async function serviceComesAndGoes(cluster: LiveCluster): Promise<void> {
  const from = traitsOf[cluster.mode].carriesTraffic ? "off-node client" : "pod";
  cluster.set(service(2, ["local-2"]));
  await cluster.follows(from, 2, "external IP", ["local-2"]);
  cluster.remove("service-2");
  await cluster.follows(from, 2, "external IP", ["timeout"]);
}

async function portChanges(cluster: LiveCluster): Promise<void> {
  const ports = PROTOCOLS.map((protocol) => ({
    name: protocol.toLowerCase(),
    protocol,
    port: 81,
    nodePort: addressesOf(6).nodePort,
    targetPort: TARGET_PORTS[protocol],
  }));
  cluster.set(service(3, ["local-1"], { ports }));
  await cluster.follows("pod", 6, "node port", ["local-1"]);
  const { address, protocol } = addressOf(3, "load balancer", "TCP", "IPv4");
  assert.deepEqual(await cluster.pods("pod", { address, protocol, port: 81 }, 2, ANSWER_LIMIT_MS), ["local-1"]);
  // If the address is the node's own, its other ports are closed.
  const isOwn = traitsOf[cluster.mode].hasVirtualServers === true;
  assert.deepEqual(
    await cluster.pods("pod", { address, protocol, port: 80 }, 2, isOwn ? ANSWER_LIMIT_MS : SILENCE_MS),
    [isOwn ? "refused" : "timeout"],
  );
}

/** A pod's requests from one port, outside the ephemeral range, to the cluster IP of a service. */
interface UdpFlow {
  readonly family: Family;
  readonly number: number;
  readonly sourcePort: number;
  /** @default the cluster IP */
  readonly to?: Destination;
}

/** Requests from one UDP port are one flow to the kernel, as long as they keep coming. */
async function askFromPort(
  cluster: LiveCluster,
  { family, number, sourcePort, to = "cluster IP" }: UdpFlow,
  timeoutMs: number,
): Promise<string> {
  const target = addressOf(number, to, "UDP", family);
  const [answer] = await cluster.network.probers.pod.connect({ ...target, sourcePort, timeoutMs });
  if (answer === undefined) throw new Error("a request has an answer");
  return answer.ok ? answer.pod : (outcomes([answer])[0] ?? "");
}

async function flowUntil(cluster: LiveCluster, flow: UdpFlow, ...pods: readonly string[]): Promise<void> {
  const end = Date.now() + EFFECT_LIMIT_MS;
  let got = await askFromPort(cluster, flow, ATTEMPT_MS);
  while (!pods.includes(got) && Date.now() < end) {
    await sleep(20);
    got = await askFromPort(cluster, flow, ATTEMPT_MS);
  }
  assert.ok(pods.includes(got), `${got}, not ${pods}: flow from port ${flow.sourcePort} over ${flow.family}`);
}

async function staleUdpFlow(cluster: LiveCluster): Promise<void> {
  const flows = FAMILIES.map((family): UdpFlow => ({ family, number: 4, sourcePort: 20004 }));
  await Promise.all(flows.map((flow) => flowUntil(cluster, flow, "local-1")));
  cluster.set(service(4, ["remote-1"]));
  await Promise.all(flows.map((flow) => flowUntil(cluster, flow, "remote-1")));
}

async function liveUdpFlows(cluster: LiveCluster): Promise<void> {
  const flows = Array.from(
    { length: 20 },
    (_, index): UdpFlow => ({
      family: "IPv4",
      number: 5,
      sourcePort: 20100 + index,
    }),
  );
  const answering = async () => {
    const pods = await Promise.all(flows.map((flow) => askFromPort(cluster, flow, ANSWER_LIMIT_MS)));
    return [...new Set(pods)].sort();
  };
  assert.deepEqual(await answering(), ["local-1", "remote-1"]);
  cluster.set(service(5, ["local-1"]));
  await Promise.all(flows.map((flow) => flowUntil(cluster, flow, "local-1")));
  cluster.set(service(5, ["local-1", "local-2"]));
  await cluster.follows("pod", 5, "cluster IP", ["local-1", "local-2"]);
  cluster.set(service(5, ["local-1", "local-2", "remote-1"]));
  await cluster.follows("pod", 5, "cluster IP", ["local-1", "local-2", "remote-1"]);
  const now = await answering();
  // Each request is a new socket: where the endpoint is chosen at the socket, it gets its own (docs/ebpf.md, Connected UDP).
  if (traitsOf[cluster.mode].runsInCgroup === true) assert.notDeepEqual(now, ["local-1"]);
  else assert.deepEqual(now, ["local-1"]);
}

async function flowBeforeService(cluster: LiveCluster): Promise<void> {
  const flows = FAMILIES.map((family): UdpFlow => ({ family, number: 8, sourcePort: 20008 }));
  // It is neither refused nor answered: the kernel remembers a flow without translation.
  for (const flow of flows) assert.equal(await askFromPort(cluster, flow, SILENCE_MS), "timeout");
  cluster.set(service(8, ["local-2"]));
  await Promise.all(flows.map((flow) => flowUntil(cluster, flow, "local-2")));
}

async function flowsEndWithService(cluster: LiveCluster): Promise<void> {
  const flows = FAMILIES.map((family): UdpFlow => ({ family, number: 9, sourcePort: 20009 }));
  const until = (outcome: string) => Promise.all(flows.map((flow) => flowUntil(cluster, flow, outcome)));
  cluster.set(service(9, ["local-1"]));
  await until("local-1");
  // The pod still answers clients that reach it.
  cluster.set(service(9, []));
  await until("refused");
  cluster.set(service(9, ["local-1"]));
  await until("local-1");
  cluster.remove("service-9");
  await until("timeout");
}

/** Upstream leaves those to node ports, which it knows only by number. */
async function flowsEndWithFrontends(cluster: LiveCluster): Promise<void> {
  const flows = (to: Destination, at: number) =>
    // An IPv6 socket also holds its port for IPv4.
    FAMILIES.map((family, index): UdpFlow => ({ family, number: 10, sourcePort: at + index, to }));
  const nodePort = flows("node port", 20010);
  // A mode that carries traffic itself serves them to packets from elsewhere.
  const external = traitsOf[cluster.mode].carriesTraffic === true ? [] : flows("external IP", 20012);
  const until = (which: readonly UdpFlow[], ...outcomes: readonly string[]) =>
    Promise.all(which.map((flow) => flowUntil(cluster, flow, ...outcomes)));
  cluster.set(service(10, ["local-1"]));
  await until([...nodePort, ...external], "local-1");
  cluster.set(service(10, ["local-1"], { externalIPs: [] }));
  await until(external, "timeout", "refused");
  await until(nodePort, "local-1");
  cluster.set(service(10, []));
  await until(nodePort, "refused", "timeout");
  cluster.set(service(10, ["local-1"]));
  await until(nodePort, "local-1");
  cluster.remove("service-10");
  await until(nodePort, "refused", "timeout");
}

async function heldTcpConnection(cluster: LiveCluster): Promise<void> {
  const { topology } = cluster.network;
  const held = await Promise.all(
    FAMILIES.flatMap((family) =>
      (["client-pod", "client"] as const).map((from) =>
        HeldConnection.open(topology.namespace(from), addressOf(7, "cluster IP", "TCP", family)),
      ),
    ),
  );
  cluster.set(service(7, ["remote-1"]));
  await cluster.follows("pod", 7, "cluster IP", ["remote-1"]);
  assert.deepEqual(
    await Promise.all(held.map((connection) => connection.use())),
    held.map(() => "local-1"),
  );
}

for (const mode of ALL_MODES) {
  test(`${mode}: live changes`, { skip: kernelSkip, concurrency: true }, async (t) => {
    const cluster = new LiveCluster(mode, await flowNetwork(t, mode, initial), initial);
    const check = (title: string, run: (cluster: LiveCluster) => Promise<void>) =>
      t.test(title, async (t) => {
        try {
          await run(cluster);
        } catch (error) {
          // The enclosing test shows the log only if it fails itself.
          t.diagnostic(`the daemon's log ends with:\n${cluster.network.daemon.log.slice(-LOG_CHARACTERS)}`);
          throw error;
        }
      });
    await Promise.all([
      check("new connections follow added, removed and replaced endpoints", endpointChanges),
      check("a new service answers, a deleted one does not", serviceComesAndGoes),
      check("a service answers at its new ports and no longer at the old ones", portChanges),
      check("a UDP flow moves when its pod is gone", staleUdpFlow),
      check("UDP flows stay where their pods stay", liveUdpFlows),
      check("a UDP flow that is older than its service is translated after all", flowBeforeService),
      check("UDP flows end with the last endpoint, and with the service", flowsEndWithService),
      check("UDP flows end with their node port and their external IP", flowsEndWithFrontends),
      check("an established TCP connection outlives its endpoint", heldTcpConnection),
    ]);
  });
}
