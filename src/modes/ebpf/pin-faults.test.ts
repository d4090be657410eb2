/** Obstacles to pinning, and other faults around it: each time, clients are still served and the log says why. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { passing } from "../../../testkit/fakes/bpf/encode.ts";
import { memoryBpf } from "../../../testkit/fakes/bpf/memory-bpf.ts";
import { until } from "../../../testkit/support/patience.ts";
import { BpfError } from "../../kernel/bpf/bpf-error.ts";
import type { Hook } from "../../kernel/bpf/hooks.ts";
import { encode } from "../../kernel/bpf/layout.ts";
import type { StaleSocket } from "../../kernel/sock-diag/disconnect-udp.ts";
import { CONNECTED_KEY, CONNECTED_VALUE, memoryMaps } from "./socket-balancer/maps.ts";
import { NOT_KEPT } from "./socket-news.ts";
import { SocketPins } from "./socket-pins.ts";
import {
  CGROUP,
  NODE_HOOKS,
  PIN_FOLDER,
  PinnedNode,
  type ProcessOptions,
  type ProxyProcess,
} from "./testing/pinned-node.ts";

const NO_SOCKETS = "Nothing is decided at the socket; the nftables rules handle all packets";
const OWN = `${PIN_FOLDER}/IPv4`;
const FOREIGN_MAP = { name: "theirs", type: "hash", keySize: 4, valueSize: 4, maxEntries: 1 } as const;
const LEADS = { "10.96.0.1:80": ["10.180.1.1:8080", "10.180.1.2:8080"] };

function scene(t: ConstructorParameters<typeof PinnedNode>[0]) {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1"), [remote("10.180.1.1"), remote("10.180.1.2")]);
  const serve = async (options?: ProcessOptions): Promise<ProxyProcess> => {
    const process = node.start(options);
    cluster.driver.forget();
    await cluster.driver.sync(process.backend);
    return process;
  };
  const fullSync = (process: ProxyProcess) => cluster.driver.sync(process.backend, { full: true });
  const sync = (process: ProxyProcess) => cluster.driver.sync(process.backend);
  return { node, serve, fullSync, sync, other: memoryBpf(node.machine) };
}

const leads = (node: PinnedNode) => Object.fromEntries(node.leads());
const attached = (node: PinnedNode, cgroup = CGROUP) => NODE_HOOKS.map((hook) => node.machine.attached(hook, cgroup));
const errors = (process: ProxyProcess) =>
  process.log.filter(({ level }) => level === "error").map(({ message }) => message);

test("what another version has left goes, and what others have put there stays", async (t) => {
  const { node, serve, other } = scene(t);
  const { pins } = other;
  const program = other.loadProgram(passing(), "connect4");
  for (const folder of ["links", "v6", "v1", "v0", "extra"]) pins.makeFolder(`${OWN}/${folder}`);
  for (const path of ["v1/frontends4", "v1/kpts_more", "v0/frontends4"]) {
    pins.pin(other.createMap(FOREIGN_MAP), `${OWN}/${path}`);
  }
  pins.pin(other.attach(program, "connect4", CGROUP), `${OWN}/links/kpts_other_version`);
  // Earlier versions named programs, too.
  pins.pin(program, `${OWN}/v6/kpts_connect4`);
  const theirs = ["extra/m", "links/theirs", "v6/theirs", "theirs"].map((path) => `${OWN}/${path}`);
  for (const path of theirs) pins.pin(other.createMap(FOREIGN_MAP), path);
  other.end();
  const process = await serve();
  assert.deepEqual(errors(process), []);
  const paths = node.machine.names.paths.filter((path) => /theirs|extra|kpts_other|v0|v1|v6.kpts|more/.test(path));
  assert.deepEqual(paths, [...theirs, `${OWN}/extra/`].sort());
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [1, 1, 1],
    "that of the other version has ended",
  );
  assert.deepEqual(leads(node), LEADS);
});

test("maps that are not as this version makes them are replaced, and all that is theirs with them", async (t) => {
  const { node, serve, other } = scene(t);
  (await serve()).kill();
  const { pins } = other;
  pins.remove(`${OWN}/v6/slots4`);
  pins.pin(other.createMap({ ...FOREIGN_MAP, name: "slots4" }), `${OWN}/v6/slots4`);
  const process = await serve();
  assert.deepEqual([errors(process), leads(node)], [[], LEADS]);
  process.kill();
  const records = node.records();
  await serve();
  assert.deepEqual(node.records(), records);
});

test("where the names cannot be kept, it says so once and works without", async (t) => {
  const { node, serve, fullSync, other } = scene(t);
  other.pins.makeFolder(`${OWN}/v6/backends4/theirs`);
  const process = await serve();
  await fullSync(process);
  assert.deepEqual(errors(process), [NOT_KEPT]);
  assert.deepEqual([leads(node), attached(node).map(({ length }) => length)], [LEADS, [1, 1, 1]]);
  other.pins.remove(`${OWN}/v6/backends4/theirs`);
  other.pins.remove(`${OWN}/v6/backends4`);
  await fullSync(process);
  process.kill();
  assert.deepEqual(leads(node), LEADS, "kept since it could be");
});

test("names that are taken away while it runs are given again with the next full sync", async (t) => {
  const { node, serve, fullSync, other } = scene(t);
  const process = await serve();
  const before = node.machine.names.paths;
  for (const path of ["links/kpts_connect4", "v6/slots4"]) other.pins.remove(`${OWN}/${path}`);
  await fullSync(process);
  assert.deepEqual(node.machine.names.paths, before);
  process.kill();
  const records = node.records();
  await serve();
  assert.deepEqual(node.records(), records);
});

test("a new version tells the connected sockets of the version before, whose records end with its maps", async (t) => {
  for (const mode of ["this one", "another"] as const) {
    const { node, serve, other } = scene(t);
    const { connected } = memoryMaps("IPv4", 8);
    const map = other.createMap(connected);
    map.update(encode(CONNECTED_KEY, { cookie: 71n }), encode(CONNECTED_VALUE.IPv4, { netns: 5n, port: 53 }));
    other.pins.makeFolder(`${OWN}/v4`);
    other.pins.pin(map, `${OWN}/v4/${connected.name}`);
    if (mode === "this one") await serve();
    else {
      const disconnect = async (sockets: readonly StaleSocket[]) => {
        node.told.push(...sockets.map(({ cookie }) => cookie));
        return sockets.map(() => "disconnected" as const);
      };
      await new SocketPins(other.pins, PIN_FOLDER, "IPv4").endWithSockets({ disconnect });
    }
    assert.deepEqual(node.told, [71n], mode);
    assert.equal(other.pins.list(`${OWN}/v4`), undefined);
  }
});

test("programs that another program detaches are attached again, and the cgroup is not called gone", async (t) => {
  const { node, serve, fullSync, other } = scene(t);
  const process = await serve();
  for (const { link } of other.findLinks("kpts_", "valid_until")) link.close();
  await fullSync(process);
  assert.deepEqual(errors(process), ["Another program has detached those that decided at the socket"]);
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [1, 1, 1],
  );
});

test("a cgroup that goes is told, and programs are at its successor with the next full sync", async (t) => {
  const { node, serve, fullSync } = scene(t);
  const process = await serve();
  node.machine.cgroups.delete(CGROUP);
  for (let round = 0; round < 3; round++) await fullSync(process);
  assert.deepEqual(errors(process), [
    "The cgroup is gone, and with it the programs that decided at the socket",
    NO_SOCKETS,
  ]);
  assert.deepEqual(
    node.machine.names.paths.filter((path) => !path.endsWith("/")),
    [],
    "nothing is left of it",
  );
  node.machine.cgroups.set(CGROUP, 6n);
  await fullSync(process);
  assert.deepEqual(leads(node), LEADS);
  process.kill();
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [1, 1, 1],
  );
});

test("what is gone is noticed without a change of the cluster", async (t) => {
  const { node, serve, fullSync, sync, other } = scene(t);
  const process = await serve();
  const stop = new AbortController();
  const asked = { syncs: 0, fullSyncs: 0 };
  const count = (what: keyof typeof asked) => () => void asked[what]++;
  const watching = process.backend.monitor(count("fullSyncs"), stop.signal, count("syncs"));
  // Read the node's addresses again.
  await sync(process);
  asked.syncs = 0;
  other.pins.remove(`${OWN}/v6/slots4`);
  await until("the name", () => node.machine.names.paths.includes(`${OWN}/v6/slots4`));
  assert.deepEqual(asked, { syncs: 0, fullSyncs: 0 });
  node.machine.cgroups.delete(CGROUP);
  await until("a sync", () => asked.syncs > 0);
  await sync(process);
  assert.equal(asked.fullSyncs, 0, "there is nothing to be done");
  node.machine.cgroups.set(CGROUP, 6n);
  await until("a full sync", () => asked.fullSyncs > 0);
  await fullSync(process);
  assert.deepEqual(leads(node), LEADS);
  stop.abort();
  await watching;
});

test("a frontend that another program takes out of the map, or changes, comes back", async (t) => {
  const { node, serve, fullSync } = scene(t);
  const process = await serve();
  const stop = new AbortController();
  let lost = 0;
  const watching = process.backend.monitor(
    () => void lost++,
    stop.signal,
    () => {},
  );
  for (const change of ["delete", "update"] as const) {
    lost = 0;
    const [frontends] = node.mapsAt("connect4").flatMap((maps) => maps.get("frontends4") ?? []);
    const [[key, value] = []] = frontends?.entries() ?? [];
    if (key === undefined || value === undefined) assert.fail("there is a frontend");
    if (change === "delete") frontends?.delete(key);
    else frontends?.update(key, new Uint8Array(value.length), 0);
    assert.notDeepEqual(leads(node), LEADS);
    await until("a full sync", () => lost > 0);
    await fullSync(process);
    assert.deepEqual(leads(node), LEADS);
  }
  stop.abort();
  await watching;
});

test("a cgroup that came in place of another while no process was there, and another one in the configuration", async (t) => {
  const { node, serve } = scene(t);
  (await serve()).kill();
  node.machine.cgroups.set(CGROUP, 6n);
  (await serve()).kill();
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [1, 1, 1],
  );
  node.machine.cgroups.set("/other", 7n);
  const process = await serve({ cgroup: "/other" });
  assert.deepEqual(errors(process), []);
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [0, 0, 0],
  );
  assert.deepEqual(
    attached(node, "/other").map(({ length }) => length),
    [1, 1, 1],
  );
});

test("a program of others that is detached, and ours, when another program detaches it", async (t) => {
  const { node, serve, fullSync, other } = scene(t);
  const foreign = (hook: Hook) => other.attach(other.loadProgram(passing(), hook), hook, CGROUP).programId;
  const before = NODE_HOOKS.map(foreign);
  const process = await serve();
  const after = NODE_HOOKS.map(foreign);
  const ours = attached(node).map(([, id]) => id);
  assert.deepEqual(
    attached(node),
    NODE_HOOKS.map((_, at) => [before[at], ours[at], after[at]]),
  );
  other.pins.link(`${OWN}/links/kpts_connect4`)?.close();
  await fullSync(process);
  assert.deepEqual(
    attached(node).map((ids) => [ids[0], ids.at(-1) === ids[0]]),
    before.map((id) => [id, false]),
  );
  assert.deepEqual(
    attached(node).map(({ length }) => length),
    [3, 3, 3],
  );
  process.kill();
  const next = await serve({ build: 2n });
  assert.ok(attached(node).every((ids, at) => ids[0] === before[at] && ids[1] === after[at]));
  await next.backend.close();
});

for (const what of ["createMap", "loadProgram", "attach"] as const) {
  test(`nothing that is old decides when ${what} fails in the next start`, async (t) => {
    const { node, serve, fullSync, other } = scene(t);
    (await serve()).kill();
    if (what === "createMap") other.pins.remove(`${OWN}/v6/slots4`);
    if (what === "attach") other.pins.remove(`${OWN}/links/kpts_connect4`);
    const process = await serve({ refused: what });
    assert.deepEqual(errors(process), [NO_SOCKETS]);
    assert.deepEqual(attached(node), [[], [], []]);
    assert.deepEqual(
      node.machine.names.paths.filter((path) => !path.endsWith("/")),
      [],
    );
    await fullSync(process);
    assert.deepEqual(errors(process), [NO_SOCKETS], "said once");
  });
}

describe("connected UDP sockets that an earlier process has led", () => {
  /** Writes a record as a program does. */
  const led = async (t: TestContext) => {
    const { node, serve, other } = scene(t);
    (await serve()).kill();
    const { connected } = memoryMaps("IPv4");
    const identity = 2n | (1n << 32n);
    const [key, value] = [
      encode(CONNECTED_KEY, { cookie: 77 }),
      encode(CONNECTED_VALUE.IPv4, {
        netns: 1,
        identity,
        address: Uint8Array.of(10, 180, 1, 1),
        port: 8080,
        backend: 0,
      }),
    ];
    other.pins.map(`${OWN}/v6/${connected.name}`, () => connected)?.update(key, value);
    return { node, serve, other };
  };

  test("stay while their endpoint serves", async (t) => {
    const { node, serve } = await led(t);
    await serve();
    assert.deepEqual(node.told, []);
  });

  test("are told when the maps are made again, where nothing else would tell them later", async (t) => {
    const { node, serve, other } = await led(t);
    other.pins.remove(`${OWN}/v6/slots4`);
    await serve();
    assert.deepEqual(node.told, [77n]);
  });

  test("are told when nothing is decided at the socket any more", async (t) => {
    const { node, serve } = await led(t);
    await serve({ refused: "loadProgram" });
    assert.deepEqual(node.told, [77n]);
  });

  test("are told when it ends, though a name cannot be removed", async (t) => {
    const { other } = await led(t);
    t.mock.method(other.pins, "remove", () => {
      throw new BpfError("EPERM", "bpf: as the test wants it: EPERM");
    });
    const told: bigint[] = [];
    const disconnect = async (sockets: readonly StaleSocket[]) => {
      told.push(...sockets.map(({ cookie }) => cookie));
      return [];
    };
    await assert.rejects(new SocketPins(other.pins, PIN_FOLDER, "IPv4").endWithSockets({ disconnect }), BpfError);
    assert.deepEqual(told, [77n]);
  });
});
