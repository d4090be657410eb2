/** What `services` reports as counted is what clients say they have made, at each address and each endpoint, in every mode. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import type { Protocol } from "../../../src/net/protocol.ts";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import {
  FAMILIES,
  type Family,
  type ServiceSpec,
  type ServingPod,
  servingPods,
  TARGET_PORTS,
} from "./cluster-objects.ts";
import { DESTINATIONS, type Destination, POSITIONS, type Position, sourceAddress } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, type Mode, protocolsOf, traitsOf } from "./modes.ts";

const CONNECTIONS = 6;

interface Frontend {
  readonly at: string;
  readonly counted: number | null;
  readonly refused?: number;
  readonly dropped?: number;
}

interface Line extends Asked {
  readonly servicePort: string;
  readonly frontends: readonly Frontend[];
  readonly endpoints: readonly { readonly address: string; readonly counted: number | null }[];
}

interface Asked {
  readonly service: number;
  readonly protocol: Protocol;
  readonly family: Family;
}

const SERVICES: readonly ServiceSpec[] = [
  { name: "web", number: 1, endpoints: ["local-1", "local-2", "remote-1"] },
  { name: "empty", number: 2, endpoints: [] },
  { name: "far", number: 3, endpoints: ["remote-1"], spec: { externalTrafficPolicy: "Local" } },
  { name: "closed", number: 4, endpoints: ["local-1"], spec: { loadBalancerSourceRanges: ["192.0.2.0/24"] } },
  {
    ...{ name: "let-in", number: 5, endpoints: ["local-1"] },
    spec: { loadBalancerSourceRanges: [`${sourceAddress("off-node client", "IPv4")}/32`] },
  },
];

/** Modes in which the kernel counts, and those in which it counts endpoints, and what is turned away. */
const COUNTS: readonly Mode[] = ["iptables", "nftables-flat", "ebpf", "userspace", "ipvs"];
const COUNTS_ENDPOINTS: readonly Mode[] = ["iptables", "nftables-flat", "ebpf", "ipvs"];
const COUNTS_TURNED_AWAY: readonly Mode[] = ["iptables", "nftables-flat", "ebpf"];

for (const mode of ALL_MODES) {
  const protocols = protocolsOf(mode).filter((one): one is Protocol => one !== "SCTP");
  test(`${mode}: what is counted is what clients did`, { skip: kernelSkip }, async (t) => {
    const socket = join(execFileSync("mktemp", ["-d"], { encoding: "utf8" }).trim(), "socket");
    const config = { connections: { count: "Endpoints", countedServices: 1 } };
    const pins = traitsOf[mode].runsInCgroup === true ? { pinFolder: `${(await testBpffs(t)).path}/kept` } : {};
    const { daemon, probers } = await flowNetwork(t, mode, SERVICES, {
      ...pins,
      args: [`--inspect-socket=${socket}`, "--inspect-bind-address=127.0.0.1:10260"],
      config,
    });
    const ask = async (position: Position, to: Destination, { service, protocol, family }: Asked, timeoutMs = 8000) => {
      const target = addressOf(service, to, protocol, family);
      const answers = await probers[position].connect({ ...target, count: CONNECTIONS, timeoutMs });
      const address = family === "IPv4" ? target.address : `[${target.address}]`;
      return {
        answers,
        place: `${protocol} ${family} ${service} ${to === "node port" ? "*" : address}:${target.port}`,
      };
    };
    const counted = async () => {
      const argv: [string, ...string[]] = [KUBE_PROXY, "services", "--socket", socket, "-o", "json"];
      const { stdout, stderr } = await daemon.namespace.exec(argv);
      const at = new Map<string, Frontend>();
      const of = new Map<string, number | null>();
      for (const { servicePort, protocol, family, frontends, endpoints } of JSON.parse(stdout) as readonly Line[]) {
        const service = SERVICES.find(({ name }) => servicePort.startsWith(`flows/${name}:`))?.number;
        for (const frontend of frontends) at.set(`${protocol} ${family} ${service} ${frontend.at}`, frontend);
        for (const { address, counted: own } of endpoints) of.set(`${protocol} ${service} ${address}`, own);
      }
      return { at, of, notes: stderr };
    };
    const isCounted = (position: Position, to: Destination): boolean => {
      if (position === "off-node client") return to !== "cluster IP";
      return mode !== "userspace" || to !== "external IP";
    };
    const made = new Map<string, number>();
    const reached = new Map<string, number>();
    for (const family of FAMILIES) {
      for (const protocol of protocols) {
        for (const to of DESTINATIONS) {
          for (const position of POSITIONS.filter((one) => isCounted(one, to))) {
            const { answers, place } = await ask(position, to, { service: 1, protocol, family });
            for (const answer of answers) {
              assert.ok(answer.ok, `${position} ${place}: ${JSON.stringify(answer)}`);
              made.set(place, (made.get(place) ?? 0) + 1);
              const pod = servingPods[answer.pod as ServingPod];
              const endpoint = `${protocol} 1 ${family === "IPv4" ? pod.ipv4 : `[${pod.ipv6}]`}:${TARGET_PORTS[protocol]}`;
              reached.set(endpoint, (reached.get(endpoint) ?? 0) + 1);
            }
          }
        }
      }
    }
    const { at, of, notes } = await counted();
    if (mode === "nftables-flat") {
      const planned = ["--config", join(daemon.folder, "config.json"), "--hostname-override", nodeA.name];
      const { stdout } = await daemon.namespace.exec([
        KUBE_PROXY,
        "diff",
        "--kernel",
        "-f",
        daemon.manifests,
        ...planned,
      ]);
      assert.match(stdout, /^no difference/i, "counters are as planned, whatever they have counted");
    }
    if (!COUNTS.includes(mode)) {
      assert.match(notes, /these rules have no counters/);
      assert.equal(
        await daemon.metric('kubeproxy_service_connections_total{namespace="flows",service="web",outcome="led"}'),
        undefined,
      );
      assert.ok([...at.values(), ...of.values()].every((one) => one === null || (one as Frontend).counted === null));
      return;
    }
    assert.ok(made.size > 0);
    const sum = [...made.values()].reduce((total, one) => total + one, 0);
    const metric = (of: string) => daemon.metric(`kubeproxy_service_connections_total{${of},outcome="led"}`);
    assert.equal(await metric('namespace="flows",service="web"'), sum);
    assert.equal(await metric('namespace="",service=""'), 0);
    const page = await daemon.fetch("http://127.0.0.1:10260/api/connections?search=web:tcp");
    const { head, rows }: { head: readonly string[]; rows: readonly (readonly string[])[] } = JSON.parse(
      page.body,
    ).counts;
    for (const family of FAMILIES) {
      const shown = rows.find(([servicePort]) => servicePort === `flows/web:tcp TCP ${family}`);
      const own = [...made].filter(([place]) => place.startsWith(`TCP ${family} 1 `));
      assert.equal(
        shown?.[head.indexOf("COUNTED")],
        `${own.reduce((total, [, one]) => total + one, 0)}`,
        "on the page",
      );
    }
    // Null: no rule counts, because none leads from there.
    for (const [place, { counted: count }] of at) assert.equal(count ?? 0, made.get(place) ?? 0, place);
    for (const [endpoint, count] of of) {
      assert.equal(count, COUNTS_ENDPOINTS.includes(mode) ? (reached.get(endpoint) ?? 0) : null, endpoint);
    }
    for (const [place, { refused = 0, dropped = 0 }] of at) assert.equal(refused + dropped, 0, place);
    if (!COUNTS_TURNED_AWAY.includes(mode)) return;

    const asked = { protocol: "TCP", family: "IPv4" } as const;
    const empty = await ask("off-node client", "external IP", { ...asked, service: 2 });
    const nearby = await ask("pod", "cluster IP", { ...asked, service: 2 });
    const far = await ask("off-node client", "node port", { ...asked, service: 3 }, 700);
    const closed = await ask("off-node client", "load balancer", { ...asked, service: 4 }, 700);
    const letIn = await ask("off-node client", "load balancer", { ...asked, service: 5 });
    assert.ok(letIn.answers.every(({ ok }) => ok));
    assert.ok([...empty.answers, ...nearby.answers, ...far.answers, ...closed.answers].every(({ ok }) => !ok));
    const after = (await counted()).at;
    const away = `kubeproxy_service_connections_total{namespace="",service="",outcome="refused"}`;
    const refused = [empty, nearby].reduce((sum, { place }) => sum + (after.get(place)?.refused ?? 0), 0);
    assert.equal(await daemon.metric(away), refused);
    // Clients send more than one packet if the first gets no answer.
    const isTold = (count = 0) => assert.ok(count >= CONNECTIONS, `${count}`);
    isTold(after.get(empty.place)?.refused);
    isTold(after.get(nearby.place)?.refused);
    if (mode === "ebpf") assert.equal(after.get(nearby.place)?.refused, CONNECTIONS, "without a packet");
    isTold(after.get(far.place)?.dropped);
    isTold(after.get(closed.place)?.dropped);
    // iptables' rule for the address counts before source ranges are checked.
    if (mode !== "iptables") assert.equal(after.get(closed.place)?.counted, 0);
    assert.equal(after.get(letIn.place)?.counted, CONNECTIONS);
    const all = [...after.values()];
    const places = (what: "refused" | "dropped") => all.filter((one) => (one[what] ?? 0) > 0).length;
    assert.deepEqual([places("refused"), places("dropped")], [2, 2]);
  });
}
