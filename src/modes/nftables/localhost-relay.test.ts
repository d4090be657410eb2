/** Node ports on loopback addresses, with real sockets: upstream's cases (reference releases.md), then our own. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type LogLine, recordingLogger } from "../../../testkit/dataplane/recording-logger.ts";
import { port as servicePort, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { until } from "../../../testkit/support/patience.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import type { IpAddress } from "../../net/ip.ts";
import { NodeRelays } from "../../relay/node-relays.ts";
import type { Destination } from "../../relay/relay.ts";
import {
  ask,
  closedPort,
  LOOPBACK,
  LOOPBACK_6,
  receiveAll,
  tcpClient,
  tcpServer,
} from "../../relay/testing/relay-lab.ts";
import { LocalhostRelay, type LocalhostRelayOptions, wantedOf } from "./localhost-relay.ts";

class Rig {
  readonly cluster = new TestCluster();
  readonly log: LogLine[] = [];
  readonly counted = { listeners: -1, failures: 0 };
  nowMs = 0;
  readonly relay: LocalhostRelay;

  constructor(t: TestContext, options: Partial<LocalhostRelayOptions> = {}) {
    const log = recordingLogger(this.log);
    this.relay = new LocalhostRelay({
      family: "IPv4",
      nodeName: "node-a",
      relays: new NodeRelays({ log, fileLimit: 64_000 }),
      metrics: {
        listeners: { set: (listeners) => void Object.assign(this.counted, { listeners }) },
        creationFailures: { inc: () => void this.counted.failures++ },
      },
      nowMs: () => this.nowMs,
      log,
      ...options,
    });
    t.after(() => this.relay.close());
  }

  async sync(isFullSync = false): Promise<void> {
    const { services, endpoints } = this.cluster;
    await this.relay.sync({ services, endpoints, isFullSync, changedPorts: new Set(services.keys()), zone: undefined });
  }

  async delete(port: ServicePort): Promise<void> {
    this.cluster.delete(port);
    const { services, endpoints } = this.cluster;
    await this.relay.sync({
      services,
      endpoints,
      isFullSync: false,
      changedPorts: new Set([port.name.key]),
      zone: undefined,
    });
  }

  async serve(port: ServicePort, endpoints: readonly Endpoint[]): Promise<void> {
    this.cluster.set(port, endpoints);
    await this.sync();
  }
}

async function nodePort(t: TestContext, overrides: Partial<ServicePort> = {}, address?: IpAddress) {
  const { port: number } = await closedPort(t, address);
  const port = servicePort(`np-${number}`, "10.96.0.1", { nodePort: number, ...overrides });
  return { port, at: { address: address ?? LOOPBACK, port: number } };
}

const endpoint = ({ address, port }: Destination, overrides: Partial<Endpoint> = {}): Endpoint =>
  makeEndpoint(address, port, overrides);

/** Endpoints that answer with their name. */
async function naming(t: TestContext, names: string): Promise<Endpoint[]> {
  const answering = (name: string) => (socket: Socket) => void socket.resume().on("end", () => socket.end(name));
  const servers = await Promise.all([...names].map((name) => tcpServer(t, answering(name))));
  return servers.map((server) => endpoint(server));
}

const asked = async (t: TestContext, at: Destination, times: number): Promise<string> => {
  const answers: string[] = [];
  for (let time = 0; time < times; time += 1) answers.push(await ask(t, at, "?"));
  return [...new Set(answers)].sort().join("");
};

const STICKY = { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 10_800 } as const;

describe("the relay (KEP-6032)", () => {
  it("listens while there is a Service with endpoints", async (t) => {
    const relays = new NodeRelays({ log: recordingLogger([]), fileLimit: 64_000 });
    const listen = t.mock.method(relays, "listen");
    const rig = new Rig(t, { relays });
    const { port, at } = await nodePort(t);
    const [a, b] = (await naming(t, "ab")) as [Endpoint, Endpoint];
    assert.equal(rig.counted.listeners, 0);
    await rig.serve(port, []);
    assert.deepEqual([rig.counted.listeners, await ask(t, at, "?")], [0, "ECONNREFUSED"]);
    await rig.serve(port, [a]);
    assert.deepEqual([rig.counted.listeners, await ask(t, at, "?")], [1, "a"]);
    await rig.serve(port, [b]);
    assert.deepEqual([rig.counted.listeners, await ask(t, at, "?")], [1, "b"]);
    assert.equal(listen.mock.callCount(), 1, "the listener stays");
    await rig.serve(port, []);
    assert.deepEqual([rig.counted.listeners, await ask(t, at, "?")], [0, "ECONNREFUSED"]);
    await rig.serve(port, [a]);
    await rig.delete(port);
    assert.deepEqual([rig.counted.listeners, await ask(t, at, "?")], [0, "ECONNREFUSED"]);
  });

  it("listens on ::1 for IPv6, and for TCP only", async (t) => {
    const rig = new Rig(t, { family: "IPv6" });
    const { port, at } = await nodePort(t, {}, LOOPBACK_6);
    const server = await tcpServer(t, (socket) => void socket.resume().on("end", () => socket.end("six")), LOOPBACK_6);
    await rig.serve(port, [endpoint(server)]);
    assert.equal(await ask(t, at, "?"), "six");
    const udp = await nodePort(t, { protocol: "UDP" });
    await rig.serve(udp.port, [endpoint(server)]);
    assert.equal(rig.counted.listeners, 1);
  });

  it("ends a silent client whose endpoint refuses, without an error", async (t) => {
    const rig = new Rig(t);
    const { port, at } = await nodePort(t);
    await rig.serve(port, [endpoint(await closedPort(t))]);
    const silent = await receiveAll(await tcpClient(t, at));
    assert.deepEqual([silent.data.length, silent.error], [0, undefined]);
  });

  it("ends open connections with the listener, and without an error", async (t) => {
    for (const end of ["service", "process"] as const) {
      const rig = new Rig(t);
      const { port, at } = await nodePort(t);
      const server = await tcpServer(t, (socket) => void socket.write("hello"));
      await rig.serve(port, [endpoint(server)]);
      const client = await tcpClient(t, at);
      const received = receiveAll(client);
      await sleep(50);
      if (end === "service") await rig.delete(port);
      else await rig.relay.close();
      assert.deepEqual(await received.then(({ data, error }) => [data.toString(), error]), ["hello", undefined], end);
    }
  });

  it("keeps connections to an endpoint that is gone", async (t) => {
    const rig = new Rig(t);
    const { port, at } = await nodePort(t);
    const old = await tcpServer(t, (socket) => void socket.resume().on("end", () => socket.end("old")));
    await rig.serve(port, [endpoint(old)]);
    const client = await tcpClient(t, at);
    client.write("?");
    await sleep(50);
    await rig.serve(port, await naming(t, "n"));
    client.end();
    assert.equal((await receiveAll(client)).data.toString(), "old");
    assert.equal(await ask(t, at, "?"), "n");
  });

  it("reaches all endpoints without affinity, and one with it", async (t) => {
    const rig = new Rig(t);
    const { port, at } = await nodePort(t);
    const endpoints = await naming(t, "abc");
    await rig.serve(port, endpoints);
    assert.equal(await asked(t, at, 100), "abc");
    await rig.serve({ ...port, ...STICKY }, endpoints);
    const first = await asked(t, at, 11);
    assert.match(first, /^[abc]$/);
    rig.nowMs += 10_800_000;
    assert.equal(await asked(t, at, 1), first, "the last moment");
    const others = endpoints.filter((_, index) => "abc"[index] !== first);
    await rig.serve({ ...port, ...STICKY }, others);
    const second = await asked(t, at, 5);
    assert.match(second, /^[abc]$/);
    assert.notEqual(second, first);
    let again = second;
    for (let time = 0; time < 40 && again === second; time += 1) {
      rig.nowMs += 10_801_000;
      again = await asked(t, at, 1);
    }
    assert.notEqual(again, second, "affinity ends");
  });

  it("has only local endpoints under the Local policy", async (t) => {
    const rig = new Rig(t);
    const [a, b] = (await naming(t, "ab")) as [Endpoint, Endpoint];
    const { port, at } = await nodePort(t, { externalPolicyLocal: true });
    await rig.serve(port, [a]);
    assert.equal(rig.counted.listeners, 0);
    await rig.serve(port, [a, { ...b, isLocal: true }]);
    assert.equal(await asked(t, at, 10), "b");
  });

  it("counts a port that another program has, serves the others, and tries it again with each sync", async (t) => {
    const rig = new Rig(t);
    const [taken, free] = [await nodePort(t), await nodePort(t)];
    const other = createServer().listen({ host: LOOPBACK, port: taken.at.port });
    t.after(() => other.close());
    const endpoints = await naming(t, "a");
    rig.cluster.set(taken.port, endpoints);
    await rig.serve(free.port, endpoints);
    assert.deepEqual([rig.counted, await ask(t, free.at, "?")], [{ listeners: 1, failures: 1 }, "a"]);
    const [line] = rig.log.filter(({ message }) => message === "Failed to create localhost nodeport proxy");
    assert.match(String(line?.error), new RegExp(`failed to listen on 127\\.0\\.0\\.1:${taken.at.port}: .*is taken`));
    await rig.sync();
    assert.equal(rig.counted.failures, 2);
    const said = rig.log.filter(({ message }) => message === "Failed to create localhost nodeport proxy");
    assert.equal(said.length, 1, "not with each of hundreds of syncs a second");
    await new Promise((resolve) => other.close(resolve));
    await rig.sync();
    assert.deepEqual([rig.counted, await ask(t, taken.at, "?")], [{ listeners: 2, failures: 2 }, "a"]);
  });

  it("gives a node port that changes hands to its new Service", async (t) => {
    const rig = new Rig(t);
    const { port, at } = await nodePort(t);
    const [a, b] = (await naming(t, "ab")) as [Endpoint, Endpoint];
    await rig.serve(port, [a]);
    rig.cluster.delete(port);
    await rig.serve(servicePort("heir", "10.96.0.2", { nodePort: at.port }), [b]);
    await rig.sync(true);
    assert.deepEqual([rig.counted, await ask(t, at, "?")], [{ listeners: 1, failures: 0 }, "b"]);
  });
});

it("a node port that changes hands in a large change is served for its new Service, whichever portion comes first", async (t) => {
  const rig = new Rig(t);
  const [{ port: heir }, { port, at }] = [await nodePort(t), await nodePort(t)];
  const [a, b] = (await naming(t, "ab")) as [Endpoint, Endpoint];
  await rig.serve(heir, [b]);
  await rig.serve(port, [a]);
  rig.cluster.delete(port);
  rig.cluster.set({ ...heir, nodePort: at.port });
  const { services, endpoints } = rig.cluster;
  const changedPorts = new Set([heir.name.key]);
  await rig.relay.sync({ services, endpoints, isFullSync: false, changedPorts, zone: undefined });
  assert.equal(await ask(t, at, "?"), "b");
});

it("gives each user's processes a share of the connections, and the place of one that has ended to the next", async (t) => {
  let user = 1;
  const log: LogLine[] = [];
  const relays = new NodeRelays({ log: recordingLogger(log), fileLimit: 132 });
  const rig = new Rig(t, { relays, userOf: async () => user });
  const { port, at } = await nodePort(t);
  const server = await tcpServer(
    t,
    (socket) =>
      void socket
        .resume()
        .on("end", () => socket.end())
        .write("hello"),
  );
  await rig.serve(port, [endpoint(server)]);
  const open = async () => {
    const client = await tcpClient(t, at);
    const first = await Promise.race([once(client, "data"), once(client, "end")]);
    return { client, isServed: String(first[0]) === "hello" };
  };
  const held = [];
  for (let index = 0; index < 12; index += 1) held.push(await open());
  const served = held.filter(({ isServed }) => isServed);
  // 80 descriptors are the relays': 40 connections.
  assert.equal(served.length, 10);
  assert.ok(log.some(({ message }) => message.startsWith("A user's processes have too many connections")));
  user = 2;
  assert.equal((await open()).isServed, true, "another user's are served");
  user = 1;
  served[0]?.client.destroy();
  await until("a place", async () => (await open()).isServed);
});

it("ends a connection that is silent for too long, and no other", async (t) => {
  const rig = new Rig(t, { idleLimitMs: 400 });
  const { port, at } = await nodePort(t);
  const server = await tcpServer(t, (socket) => void socket.on("data", () => socket.write("!")));
  await rig.serve(port, [endpoint(server)]);
  const [silent, busy] = [await tcpClient(t, at), await tcpClient(t, at)];
  const ask = setInterval(() => busy.write("?"), 20);
  t.after(() => clearInterval(ask));
  busy.resume();
  const received = receiveAll(silent);
  silent.write("?");
  assert.deepEqual(await received.then(({ data, error }) => [data.toString(), error]), ["!", undefined]);
  assert.equal(busy.closed, false);
});

it("of several Services with one node port the one that rules lead to is served", () => {
  const port = makeServicePort({ nodePort: 30080 });
  const node = { nodeName: "node-a", zone: undefined };
  const wanted = (one: ServicePort) => wantedOf(one, [makeEndpoint("10.180.0.1")], node);
  assert.equal(wanted(port)?.port, port);
  assert.equal(wanted({ ...port, lostFrontends: new Set(["tcp *:30080"]) }), undefined);
});
