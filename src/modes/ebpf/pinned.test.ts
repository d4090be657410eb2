/** Pins in a bpf file system: the next process continues with them, wherever the last one was killed. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { ip } from "../../model/testing/records.ts";
import { countingMaps, leadingMaps, memoryMaps } from "./socket-balancer/maps.ts";
import {
  CGROUP,
  NODE_HOOKS,
  PIN_FOLDER,
  PinnedNode,
  type ProcessOptions,
  type ProxyProcess,
} from "./testing/pinned-node.ts";

const endpointsOf = (...numbers: readonly number[]) => numbers.map((number) => remote(`10.180.1.${number}`));

/** A node, the cluster, and how a process serves it. */
function scene(t: TestContext) {
  const node = new PinnedNode(t);
  const cluster = new TestCluster();
  cluster.set(port("web", "10.96.0.1"), endpointsOf(1, 2, 3, 16));
  cluster.set(port("dns", "10.96.0.2", { nodePort: 30_053 }), endpointsOf(4));
  cluster.set(port("empty", "10.96.0.3"), []);
  cluster.set(port("going", "10.96.0.4", { externalIPs: [ip("192.0.2.4")] }), endpointsOf(5, 6));
  const serve = async (options?: ProcessOptions): Promise<ProxyProcess> => {
    const process = node.start(options);
    cluster.driver.forget();
    await cluster.driver.sync(process.backend);
    return process;
  };
  return { node, cluster, serve };
}

/** Changes of every kind, exceeding the maps' capacity. */
function change(cluster: TestCluster): void {
  cluster.setEndpoints(port("web", "10.96.0.1"), endpointsOf(2, 3, 16));
  cluster.set(port("dns", "10.96.0.2", { nodePort: 30_054, sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 60 }));
  cluster.setEndpoints(port("dns", "10.96.0.2"), endpointsOf(4, 15));
  cluster.setEndpoints(port("empty", "10.96.0.3"), endpointsOf(8, 9, 10));
  cluster.delete(port("going", "10.96.0.4"));
  cluster.set(port("heir", "10.96.0.5", { externalIPs: [ip("192.0.2.4")] }), endpointsOf(11, 14));
  for (let number = 0; number < 3; number++) {
    cluster.set(port(`new-${number}`, `10.96.1.${number}`), endpointsOf(20 + number, 30 + number));
  }
}

const wantedNames = (process: ProxyProcess) => {
  const programs = NODE_HOOKS.map((hook) => `kpts_${hook}`);
  const leading = leadingMaps("IPv4", { frontends: 1, slots: 1, backends: 1 });
  const definitions = { ...leading, ...memoryMaps("IPv4"), ...countingMaps("IPv4", 1) };
  const maps = Object.values(definitions).map(({ name }) => name);
  assert.ok(process.backend.socketPath.isAttached);
  const own = `${PIN_FOLDER}/IPv4`;
  const folders = ["/bpf/", "/bpf/kube-proxy-ts/", `${PIN_FOLDER}/`, `${own}/`, `${own}/links/`, `${own}/v6/`];
  return [
    ...folders,
    ...programs.map((name) => `${own}/links/${name}`),
    ...maps.map((name) => `${own}/v6/${name}`),
  ].sort();
};

function assertWhole(node: PinnedNode, process: ProxyProcess, cluster: TestCluster, when = ""): void {
  assert.deepEqual(
    process.log.filter(({ level }) => level === "error"),
    [],
    when,
  );
  assert.deepEqual(node.machine.names.paths, wantedNames(process), when);
  for (const hook of NODE_HOOKS) assert.equal(node.machine.attached(hook, CGROUP).length, 1, `${hook} ${when}`);
  const leading = new Set(
    NODE_HOOKS.flatMap((hook) => node.mapsAt(hook).flatMap((maps) => maps.get("frontends4") ?? [])),
  );
  assert.equal(leading.size, 1, `all lead by the same maps ${when}`);
  assert.deepEqual(sortedLeads(node), wantedLeads(cluster), when);
}

const sortedLeads = (node: PinnedNode) => Object.fromEntries([...node.leads()].toSorted());

/** Computed without maps. */
function wantedLeads(cluster: TestCluster): Record<string, readonly string[]> {
  const leads: [string, readonly string[]][] = [];
  for (const service of cluster.services.values()) {
    const endpoints = (cluster.endpoints.get(service.name.key) ?? [])
      .map(({ ip: address, port: at }) => `${address}:${at}`)
      .sort();
    const places = [`${service.clusterIP}:80`, ...service.externalIPs.map((address) => `${address}:80`)];
    if (service.nodePort !== 0) places.push(`0.0.0.0:${service.nodePort}`);
    for (const place of places) leads.push([place, endpoints]);
  }
  return Object.fromEntries(leads.toSorted());
}

describe("what is kept for the next process", () => {
  test("a restart, or a sudden death, moves no client, and disconnects no socket", async (t) => {
    const { node, cluster, serve } = scene(t);
    const first = await serve();
    assertWhole(node, first, cluster);
    const links = () => NODE_HOOKS.map((hook) => [...node.machine.links].find((link) => link.hook === hook));
    const [records, before] = [node.records(), links()];
    first.kill();
    assert.deepEqual(sortedLeads(node), wantedLeads(cluster), "while no process is there");
    for (const how of ["kill", "close"] as const) {
      const next = await serve();
      assertWhole(node, next, cluster);
      assert.deepEqual(node.records(), records);
      assert.deepEqual(links(), before, "each program took the place of the last one");
      if (how === "close") await next.backend.close();
      next.kill();
    }
    assert.deepEqual(sortedLeads(node), wantedLeads(cluster));
    assert.deepEqual(node.told, []);
  });

  test("a process that is stopped before its first sync leaves all of it to the next one", async (t) => {
    const { node, cluster, serve } = scene(t);
    (await serve()).kill();
    const early = node.start();
    await early.backend.close();
    early.kill();
    assert.deepEqual(early.steps, []);
    assert.deepEqual(sortedLeads(node), wantedLeads(cluster));
    assertWhole(node, await serve(), cluster);
  });

  test("what changed meanwhile moves those alone whose endpoint is gone", async (t) => {
    const { node, cluster, serve } = scene(t);
    (await serve()).kill();
    const records = node.records();
    cluster.setEndpoints(port("web", "10.96.0.1"), endpointsOf(1, 2, 12, 16));
    const next = await serve();
    assertWhole(node, next, cluster);
    const moved = [...records].filter(([at, record]) => node.records().get(at) !== record);
    assert.deepEqual(
      moved.map(([at]) => at),
      ["10.96.0.1:80 10.180.1.3:8080"],
    );
    change(cluster);
    await cluster.driver.sync(next.backend);
    assertWhole(node, next, cluster);
  });
});

/** Kills a process before each of its steps in turn. */
async function killedEverywhere(
  t: TestContext,
  prepare: (scene: ReturnType<typeof sceneOf>) => Promise<void>,
  victim: ProcessOptions,
): Promise<void> {
  const moved: string[] = [];
  for (let steps = 0; ; steps++) {
    const { node, cluster, serve } = sceneOf(t);
    await prepare({ node, cluster, serve });
    const [before, records] = [wantedLeads(cluster), node.records()];
    const hadLinks = node.leads().size > 0;
    change(cluster);
    const after = wantedLeads(cluster);
    const process = await serve({ ...victim, steps });
    const when = `killed after ${steps} steps, after ${process.steps.at(-1)}`;
    const { isDead } = process;
    process.kill();
    // Every frontend is redirected to endpoints of its own only.
    for (const [frontend, endpoints] of node.leads()) {
      const own = [...(before[frontend] ?? []), ...(after[frontend] ?? [])];
      assert.ok(
        endpoints.every((one) => own.includes(one)),
        `${frontend} to ${endpoints}, not ${own}, ${when}`,
      );
    }
    assert.ok(!hadLinks || node.leads().size > 0, `what decided does so ${when}`);
    const next = await serve({ build: 2n });
    assertWhole(node, next, cluster, when);
    for (const [at, record] of node.records()) if ((records.get(at) ?? record) !== record) moved.push(`${at} ${when}`);
    cluster.setEndpoints(port("heir", "10.96.0.5"), endpointsOf(11, 12, 13));
    await cluster.driver.sync(next.backend);
    assertWhole(node, next, cluster, when);
    next.kill();
    const kept = node.records();
    (await serve({ build: 2n })).kill();
    assert.deepEqual(node.records(), kept, `all was kept ${when}`);
    t.mock.restoreAll();
    if (!isDead) {
      t.diagnostic(`${steps} steps`);
      assert.deepEqual(moved, []);
      return;
    }
  }
}

const sceneOf = scene;

describe("killed before any of its steps", () => {
  test("in its first start", (t) => killedEverywhere(t, async () => {}, {}));

  test("in its first start with another build, and changes", (t) =>
    killedEverywhere(t, async ({ serve }) => (await serve()).kill(), { build: 2n }));
});
