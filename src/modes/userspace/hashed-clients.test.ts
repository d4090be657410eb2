/** Services that ask for a hash: a client meets the same pod through every proxy. */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { type TestContext, test } from "node:test";
import { relayChain } from "../../contract/relay-chain.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { chooserOf } from "../../model/sparse-tables.ts";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { Hashing } from "../../net/balancing.ts";
import type { IpAddress } from "../../net/ip.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { Destination } from "../../relay/relay.ts";
import { exchange, LOOPBACK_6, tcpServer, udpSocket } from "../../relay/testing/relay-lab.ts";
import type { NodeFacts } from "../../trace/facts.ts";
import { newPacket } from "../../trace/packet.ts";
import { Balancer } from "./balancer.ts";
import { laneKey } from "./portals.ts";
import { ServiceRelays } from "./service-relays.ts";
import { BackendRig } from "./testing/backend-rig.ts";

const PODS = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
const VIP = "192.168.1.5";

/** Two proxies that hear of the endpoints in other orders. */
function rigs(protocol: "TCP" | "UDP", balancing: Hashing, sticky = false): readonly [BackendRig, BackendRig] {
  const affinity = sticky ? { sessionAffinity: "ClientIP" as const, stickyMaxAgeSeconds: 100 } : {};
  const [a, b] = [new BackendRig({ rules: "none" }), new BackendRig({ rules: "none", random: 0.9 })] as const;
  for (const [rig, pods] of [
    [a, PODS],
    [b, PODS.toReversed()],
  ] as const) {
    const externalIPs = [VIP as IpAddress];
    const port = { protocol, port: 80, externalIPs, isExternallyAccessible: true, balancing, ...affinity };
    rig.set("web", port, pods);
    rig.set(
      "other",
      { ...port, port: 81 },
      pods.map((pod) => makeEndpoint(pod, 9090)),
    );
  }
  return [a, b];
}

for (const protocol of ["TCP", "UDP"] as const) {
  test(`${protocol}: 1,000 clients meet the same pod through two proxies and at both ports of a Service`, async () => {
    const [a, b] = rigs(protocol, "SourceHash");
    await Promise.all([a.sync(), b.sync()]);
    const counts = new Map<string, number>();
    for (let client = 0; client < 1000; client++) {
      const from = `172.16.${client >> 8}.${client & 255}`;
      const pod = a.connect(protocol, VIP, 80, from, 1024 + client) ?? "none";
      for (const rig of [a, b]) {
        for (const port of [80, 81]) assert.equal(rig.connect(protocol, VIP, port, from, 40_000 - client), pod, from);
      }
      counts.set(pod, (counts.get(pod) ?? 0) + 1);
    }
    // 99.9 % of samples are within.
    for (const pod of PODS) assert.ok(Math.abs((counts.get(pod) ?? 0) - 250) < 3.29 * Math.sqrt(1000 * 0.1875), pod);
  });
}

test("a flow hash looks at the port, too", async () => {
  const [a, b] = rigs("TCP", "FlowHash");
  await Promise.all([a.sync(), b.sync()]);
  const met = new Set<string>();
  for (let port = 1024; port < 1124; port++) {
    const pod = a.connect("TCP", VIP, 80, "172.16.0.1", port) ?? "none";
    assert.equal(b.connect("TCP", VIP, 80, "172.16.0.1", port), pod);
    met.add(pod);
  }
  assert.deepEqual([...met].sort(), PODS);
});

test("session affinity wins over the hash; drain and an endpoint that is gone win over both", async () => {
  const [rig] = rigs("TCP", "FlowHash", true);
  await rig.sync();
  const pod = (from = 1) => rig.connect("TCP", VIP, 80, "172.16.0.1", from) ?? "none";
  const first = pod();
  for (let port = 2; port < 40; port++) assert.equal(pod(port), first);
  const port = {
    port: 80,
    externalIPs: [VIP as IpAddress],
    isExternallyAccessible: true,
    balancing: "FlowHash" as const,
  };
  const weight = (one: string) => (one === first ? { weight: 0 } : {});
  rig.set(
    "web",
    { ...port, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 100 },
    PODS.map((one) => makeEndpoint(one, 8080, weight(one))),
  );
  await rig.sync();
  const second = pod();
  assert.notEqual(second, first);
  rig.set("web", port, PODS);
  await rig.sync();
  assert.equal(new Set(Array.from({ length: 100 }, (_, from) => pod(1000 + from))).size, 4, "by the hash again");
});

/** Proxies of their own sockets on loopback. */
function proxiesOf(t: TestContext, hashing: Hashing, pods: readonly Endpoint[]) {
  const toDestination = ({ ip: address, port }: Endpoint): Destination => ({ address, port });
  return [pods, pods.toReversed()].map((endpoints) => {
    const balancer = new Balancer({ random: Math.random, nowMs: () => 0 });
    const choose = chooserOf(hashing, endpoints, 7);
    const relays = new NodeRelays({ log: silentLogger, fileLimit: 64_000 });
    const nothing = () => {};
    const observer = { opened: nothing, closed: nothing, bytes: nothing, dialFailed: nothing, refused: nothing };
    const sockets = new ServiceRelays({ relays, balancer, udpIdleTimeoutMs: 60_000, observe: () => observer });
    t.after(() => sockets.drain(0));
    return async (protocol: "TCP" | "UDP", address: string) => {
      const name = servicePortName("ns", "web", "p", protocol);
      balancer.set(
        laneKey(name.key, "cluster"),
        endpoints.map(toDestination),
        undefined,
        choose && ((client) => toDestination(choose(client))),
      );
      const asked = { name, address: address as IpAddress, port: 0, sources: [], laneOf: () => "cluster" as const };
      return await sockets.listen(asked);
    };
  });
}

test("real sockets: clients of 200 addresses over TCP, and flows of IPv6 over UDP", async (t) => {
  const servers = await Promise.all(
    ["127.9.0.1", "127.9.0.2", "127.9.0.3"].map((address) =>
      tcpServer(t, (socket) => void socket.end(address), address as IpAddress),
    ),
  );
  const pods = servers.map(({ address, port }) => makeEndpoint(address, port));
  const proxies = await Promise.all(proxiesOf(t, "SourceHash", pods).map((listen) => listen("TCP", "127.0.0.1")));
  const met = new Set<string>();
  for (let client = 1; client <= 200; client++) {
    const answers = await Promise.all(
      proxies.map(async ({ port }) => {
        const socket = connect({ host: "127.0.0.1", port, localAddress: `127.7.0.${client}` });
        t.after(() => socket.destroy());
        const [data]: Buffer[] = await once(socket, "data");
        socket.destroy();
        return String(data);
      }),
    );
    assert.equal(new Set(answers).size, 1, `127.7.0.${client}: ${answers}`);
    met.add(answers[0] ?? "");
  }
  assert.equal(met.size, 3);

  const echoes = await Promise.all(
    ["a", "b", "c"].map(async (name) => {
      const socket = createSocket("udp6", (_message, from) => socket.send(name, from.port, from.address));
      t.after(() => socket.close());
      socket.bind(0, LOOPBACK_6);
      await once(socket, "listening");
      return makeEndpoint(LOOPBACK_6, socket.address().port);
    }),
  );
  const flows = await Promise.all(proxiesOf(t, "FlowHash", echoes).map((listen) => listen("UDP", LOOPBACK_6)));
  const names = new Set<string>();
  for (let flow = 0; flow < 40; flow++) {
    const client = await udpSocket(t, LOOPBACK_6);
    const answers: string[] = [];
    for (const { address, port } of flows) answers.push(String(await exchange(client, { address, port }, "hello")));
    assert.equal(new Set(answers).size, 1, `${client.address().port}: ${answers}`);
    names.add(answers[0] ?? "");
  }
  assert.deepEqual([...names].sort(), ["a", "b", "c"]);
});

test("trace says which pod exactly", async () => {
  const [rig] = rigs("TCP", "SourceHash");
  await rig.sync();
  const pods = PODS.map((pod) => makeEndpoint(pod, 8080));
  const port = makeServicePort({ balancing: "SourceHash" });
  const relay = { port, looksAtClient: false, endpointsFor: () => pods };
  const dump = relayChain(new Map([["tcp 192.168.1.5:80", relay]]), false, 7);
  assert.equal(dump.kind, "chains");
  const facts = { ownAddressTowards: () => undefined } as unknown as NodeFacts;
  const rule = dump.kind === "chains" ? dump.chains(facts, undefined)[0]?.chain.ruleAt(0) : undefined;
  for (let client = 1; client < 60; client++) {
    const source = `172.16.0.${client}` as IpAddress;
    const sent = {
      family: "IPv4",
      protocol: "tcp",
      source,
      destination: VIP as IpAddress,
      destinationPort: 80,
    } as const;
    const result = rule?.steps[0]?.run(newPacket({ ...sent, sourcePort: undefined, inInterface: "" }));
    assert.equal(result?.kind, "choice");
    const taken = result?.kind === "choice" ? result.taken : undefined;
    assert.equal(PODS[taken ?? -1], rig.connect("TCP", VIP, 80, source));
  }
});
