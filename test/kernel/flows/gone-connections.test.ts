/** `connections.endTCP: Gone`: connections to endpoints that are gone end, and no others. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { udpDisconnector } from "../../../src/kernel/sock-diag/disconnect-udp.ts";
import { stretched, until } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import {
  clusterOf,
  FAMILIES,
  type ServiceSpec,
  servingPods,
  TARGET_PORTS,
  TERMINATING,
  UNREADY,
} from "./cluster-objects.ts";
import { namespaceAt, type Position } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { HeldConnection } from "./held-connection.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";
import { askSteadily } from "./steady-clients.ts";

/** How long an endpoint must be gone. */
const AFTER_MS = 2000;
/** What would end has ended by then. */
const LATER_MS = 2 * AFTER_MS;
/** Per kind. */
const CONNECTIONS = 5;
const OF_A_PLACE = FAMILIES.length * CONNECTIONS;
const PLACES = [
  ["pod", "cluster IP"],
  ["node", "cluster IP"],
  ["off-node client", "node port"],
] as const;

for (const mode of ALL_MODES) {
  if (!protocolsOf(mode).includes("TCP")) continue;
  test(`${mode}: connections to endpoints that are gone`, { skip: kernelSkip }, async (t) => {
    const web = (endpoints: ServiceSpec["endpoints"]): ServiceSpec => ({ name: "web", number: 1, endpoints });
    const left: ServiceSpec = { name: "left", number: 2, endpoints: ["remote-1"] };
    const config = { connections: { endTCP: "Gone", endTCPAfter: `${AFTER_MS}ms` } };
    const never = (services: readonly ServiceSpec[]) =>
      clusterOf(services).map((object) => {
        const { metadata, ...others } = object as { readonly metadata: { readonly name: string } };
        const annotations = { "kube-proxy-ts/end-tcp": "Never" };
        return metadata.name === "left" ? { ...others, metadata: { ...metadata, annotations } } : object;
      });
    // Without the other namespaces' files only the node's own sockets are found: those of pods and of other machines get a reset.
    const isBlind = mode === "nftables";
    const hiding = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run/netns && exec "$@"', "sh"] as const;
    const extras = isBlind ? { config, wrapper: [...hiding] as [string, ...string[]] } : { config };
    const network = await flowNetwork(t, mode, [web(["remote-1"]), left], extras);
    const { daemon, topology, cgroup } = network;
    const set = async (...services: readonly ServiceSpec[]): Promise<void> => {
      const before = Date.now();
      daemon.writeObjects(never(services));
      await daemon.synced(before);
    };
    await set(web(["remote-1"]), left);

    const open = async (position: Position, to: (typeof PLACES)[number][1], service: number) => {
      const held: HeldConnection[] = [];
      for (const family of FAMILIES) {
        for (let count = 0; count < CONNECTIONS; count += 1) {
          const address = addressOf(service, to, "TCP", family);
          const inside = position === "off-node client" ? undefined : cgroup;
          held.push(await HeldConnection.open(topology.namespace(namespaceAt[position]), address, inside));
        }
      }
      return held;
    };
    const openAll = async (service: number) =>
      (await Promise.all(PLACES.map(([position, to]) => open(position, to, service)))).flat();
    const used = async (held: readonly HeldConnection[]) =>
      [...new Set(await Promise.all(held.map((one) => one.use())))].sort();

    const tracked = async (): Promise<string> => {
      const { stdout } = await daemon.namespace.exec(["conntrack", "-L", "-p", "tcp"]);
      return mode === "ipvs" ? `${stdout}${daemon.namespace.readProcNet("ip_vs_conn")}` : stdout;
    };
    const assertKept = async (held: readonly HeldConnection[], why: string): Promise<void> => {
      const before = await tracked();
      const outcomes = await Promise.all(held.map((one) => one.use()));
      const lost = outcomes.flatMap((outcome, index) => {
        const [from, to] = PLACES[Math.floor(index / OF_A_PLACE)] ?? [];
        const family = FAMILIES[Math.floor(index / CONNECTIONS) % FAMILIES.length];
        return outcome === "remote-1" ? [] : [`${from}, ${to}, ${family}: ${outcome}`];
      });
      if (lost.length > 0) {
        const evidence = ["before:", before, "after:", await tracked(), "the daemon's log:", daemon.log];
        throw new Error([why, ...lost, ...evidence].join("\n"));
      }
    };

    const groups = await Promise.all(Array.from({ length: 4 }, () => openAll(1)));
    const [whenTerminating = [], whenUnready = [], whenListed = [], whenGone = []] = groups;
    const annotated = await openAll(2);
    const there = { protocol: "TCP", address: servingPods["remote-1"].ipv4, port: TARGET_PORTS.TCP } as const;
    const direct = await HeldConnection.open(topology.namespace(namespaceAt.pod), there, cgroup);
    if (traitsOf[mode].carriesTraffic) {
      // A client is connected when the proxy accepts it, before an endpoint is.
      const carried = (family: string) =>
        daemon.metric(`kubeproxy_userspace_active_connections{ip_family="${family}",protocol="tcp"}`);
      const areCarried = async () =>
        (await Promise.all(FAMILIES.map(carried))).every((count = 0) => count === PLACES.length * CONNECTIONS * 5);
      await until("endpoints of all", areCarried, { evidence: () => daemon.log });
    }
    const stop = askSteadily(network, 1, ["TCP"]);

    await set(web(["local-1", { pod: "remote-1", conditions: TERMINATING }]), { ...left, endpoints: [] });
    await sleep(LATER_MS);
    await assertKept(whenTerminating, "a pod that terminates keeps its connections");
    await set(web(["local-1", { pod: "remote-1", conditions: UNREADY }]), { ...left, endpoints: [] });
    await sleep(LATER_MS);
    await assertKept(whenUnready, "one that is not ready, too");
    await set(web(["local-1"]), { ...left, endpoints: ["remote-1"] });
    await sleep(LATER_MS);
    await assertKept(whenListed, "and one that another Service still has");

    const sinceMs = Date.now();
    await set(web(["local-1"]), { ...left, endpoints: [] });
    const ended = (family: string) =>
      daemon.metric(`kubeproxy_conntrack_reconciler_ended_connections_total{ip_family="${family}"}`);
    const areEnded = async () =>
      (await Promise.all(FAMILIES.map(ended))).every((count = 0) => count >= PLACES.length * CONNECTIONS);
    await until("ended connections", areEnded, { patienceMs: 20_000 }).catch(async (error: unknown) => {
      const { body: metrics } = await daemon.fetch("http://127.0.0.1:10249/metrics");
      const tasks = `/proc/${daemon.pid}/task`;
      const threads = (existsSync(tasks) ? readdirSync(tasks) : []).map((one) =>
        ["comm", "wchan", "syscall"].map((file) =>
          readFileSync(`/proc/${daemon.pid}/task/${one}/${file}`, "utf8").trim(),
        ),
      );
      const told = metrics.split("\n").filter((line) => /^kubeproxy_(conntrack|sync)/.test(line));
      throw new Error(`${error}\n${[...told, ...threads.map(String)].join("\n")}\n${await tracked()}`);
    });
    const tookMs = Date.now() - sinceMs;
    t.diagnostic(`ended ${tookMs} ms after the endpoint went`);
    assert.ok(tookMs >= AFTER_MS && tookMs <= stretched(AFTER_MS + 1500), `${tookMs} ms`);
    // User-mode Linux is built without INET_DIAG_DESTROY.
    const canEndSockets = !traitsOf[mode].carriesTraffic && (await udpDisconnector().obstacle()) === undefined;
    for (const [index, [position]] of PLACES.entries()) {
      const isSeen = position === "node" || (position === "pod" && !isBlind);
      const outcomes = await used(whenGone.slice(index * OF_A_PLACE, (index + 1) * OF_A_PLACE));
      assert.deepEqual(outcomes, [isSeen && canEndSockets ? "read ECONNABORTED" : "read ECONNRESET"], position);
    }
    await assertKept(annotated, "the annotation forbids it");
    assert.equal(await direct.use(), "remote-1", "connections that no Service led are others' affair");
    assert.deepEqual(await stop(), []);
  });
}

/** Modes in which another program can redirect what is sent to a Service's address: by nf_tables, which user-mode Linux lacks. */
const REDIRECTED = process.env.KPTS_MODES === undefined ? (["iptables", "nftables", "nftables-flat"] as const) : [];
for (const mode of REDIRECTED) {
  test(`${mode}: what another program leads stays; what left while the daemon was away ends`, {
    skip: kernelSkip,
  }, async (t) => {
    const web = (pod: "remote-1" | "local-1"): ServiceSpec => ({ name: "web", number: 1, endpoints: [pod] });
    const config = { connections: { endTCP: "Gone", endTCPAfter: `${AFTER_MS}ms` } };
    const { daemon, topology } = await flowNetwork(t, mode, [web("remote-1")], { config });
    const client = topology.namespace(namespaceAt["off-node client"]);
    const of = (to: "external IP" | "node port") => addressOf(1, to, "TCP", "IPv4");
    const { address, port } = of("external IP");
    const elsewhere = `${servingPods["local-2"].ipv4}:${TARGET_PORTS.TCP}`;
    const rule = `ip daddr ${address} tcp dport ${port} dnat to ${elsewhere}`;
    const hook = "add table ip hostport; add chain ip hostport c { type nat hook prerouting priority -110; }";
    await daemon.namespace.exec(["nft", `${hook}; add rule ip hostport c ${rule}`]);
    const foreign = await Promise.all([1, 2].map(() => HeldConnection.open(client, of("external IP"))));
    const led = await Promise.all([1, 2].map(() => HeldConnection.open(client, of("node port"))));
    const ended = () => daemon.metric('kubeproxy_conntrack_reconciler_ended_connections_total{ip_family="IPv4"}');

    assert.equal(await daemon.stop("SIGKILL"), "SIGKILL");
    daemon.writeObjects(clusterOf([web("local-1")]));
    const startedAt = Date.now();
    daemon.spawn();
    await daemon.synced(startedAt);
    await until("ended connections", async () => (await ended()) === 2, { patienceMs: 20_000 });
    assert.deepEqual(await Promise.all(led.map((one) => one.use())), ["read ECONNRESET", "read ECONNRESET"]);

    const before = Date.now();
    daemon.writeObjects(clusterOf([web("remote-1")]));
    await daemon.synced(before);
    await sleep(LATER_MS);
    assert.deepEqual(await Promise.all(foreign.map((one) => one.use())), ["local-2", "local-2"]);
    assert.equal(await ended(), 2);
  });
}
