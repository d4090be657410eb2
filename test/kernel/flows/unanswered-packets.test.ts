/** Packets of real connections to endpoints that answer and that do not, seen by the table of unanswered SYNs. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { forgetUnanswered } from "../../../src/agent/sync/waiting-connections.ts";
import { openConntrack } from "../../../src/kernel/conntrack/netlink-conntrack.ts";
import { inNetworkNamespace } from "../../../src/kernel/network-namespace.ts";
import { deleteTables, UNANSWERED_TABLE } from "../../../src/kernel/nftables/delete-tables.ts";
import {
  type ObservedEndpoints,
  openUnansweredObserver,
  type PacketEvidence,
} from "../../../src/kernel/nftables/unanswered-table.ts";
import { silentLogger } from "../../../src/logging/logger.ts";
import { joinHostPort } from "../../../src/net/ip.ts";
import { until } from "../../../testkit/support/patience.ts";
import { addServingPod, kernelSkip, probersFor, topologyFor } from "../../../testkit/support/topology.ts";

const PODS = {
  alive: { ipv4: "10.180.0.11", ipv6: "fd00:10:180::11" },
  dead: { ipv4: "10.180.0.12", ipv6: "fd00:10:180::12" },
} as const;
type Pod = keyof typeof PODS;
const VIRTUAL = { ipv4: "10.96.7.7", ipv6: "fd00:96::7" } as const;
const FAMILIES = ["ipv4", "ipv6"] as const;
type Family = (typeof FAMILIES)[number];
/** Ports of the virtual address, and what serves them. */
const SERVED = {
  alive: { port: 81, pod: "alive", target: 8080 },
  dead: { port: 82, pod: "dead", target: 8080 },
  stopped: { port: 83, pod: "alive", target: 8081 },
  closed: { port: 84, pod: "alive", target: 8082 },
} as const;
type Served = keyof typeof SERVED;
/** Clients outside, in a pod, and of the node itself. */
const FROM = ["client", "client-pod", "node-a"] as const;
const PATIENCE_MS = 20_000;

function endpoint(family: Family, served: Served, pod: Pod = SERVED[served].pod): string {
  return joinHostPort(PODS[pod][family], SERVED[served].target);
}
const ALL = FAMILIES.flatMap((family) => (Object.keys(SERVED) as Served[]).map((one) => endpoint(family, one)));

/** Rules as Services have them. @param instead who serves the port of the dead pod */
function rulesOf(family: Family, instead: Pod = "dead"): string {
  const name = family === "ipv4" ? "ip" : "ip6";
  const rules = (Object.keys(SERVED) as Served[]).map((one) => {
    const to = endpoint(family, one, one === "dead" ? instead : undefined);
    return `${name} daddr ${VIRTUAL[family]} tcp dport ${SERVED[one].port} dnat to ${to}`;
  });
  const chains = ["prerouting", "output"].map(
    (hook) => `chain ${hook} {\ntype nat hook ${hook} priority -100;\n${rules.join("\n")}\n}`,
  );
  return `table ${name} service\ndelete table ${name} service\ntable ${name} service {\n${chains.join("\n")}\n}`;
}

async function network(t: TestContext, { isTranslated = true } = {}) {
  const topology = await topologyFor(t);
  for (const name of ["alive", "dead"] as const) {
    await addServingPod(topology, { name, node: "node-a", ...PODS[name] }, [{ protocol: "TCP", port: 8080 }]);
  }
  const node = topology.namespace("node-a");
  const load = (input: string) => node.exec(["nft", "-f", "-"], { input });
  for (const family of FAMILIES) await load(rulesOf(family));
  const open = (family: Family) => openUnansweredObserver(family === "ipv4" ? "IPv4" : "IPv6", isTranslated);
  const observers = await inNetworkNamespace(node.path, () => Promise.all(FAMILIES.map(open)));
  t.after(() => Promise.all(observers.map((one) => one.close())));
  const observer = {
    async observe({ watched, suspects }: ObservedEndpoints) {
      for (const [at, one] of observers.entries()) {
        const isOfFamily = (text: string) => text.startsWith("[") === (at === 1);
        const of = (all: ReadonlySet<string>) => new Set([...all].filter(isOfFamily));
        await one.observe({ watched: of(watched), suspects: of(suspects) });
      }
    },
    read: async () => (await Promise.all(observers.map((one) => one.read()))).flat(),
  };
  await observer.observe({ watched: new Set(ALL), suspects: new Set() });
  const seen: PacketEvidence[] = [];
  const sees = (what: string, test: (one: PacketEvidence) => boolean) =>
    until(
      what,
      async () => {
        seen.push(...(await observer.read()));
        return seen.some(test);
      },
      { patienceMs: PATIENCE_MS, pauseMs: 100, evidence: () => JSON.stringify(seen) },
    );
  const probers = probersFor(topology, FROM);
  const connect = (from: keyof typeof probers, family: Family, served: Served, timeoutMs: number, count = 1) =>
    probers[from].connect({ protocol: "TCP", address: VIRTUAL[family], port: SERVED[served].port, timeoutMs, count });
  return { topology, node, load, observer, seen, sees, connect, probers };
}

const DROP =
  "table inet deaf {\nchain input {\ntype filter hook input priority 0;\nmeta nfproto ipv4 tcp dport 8080 counter drop\nmeta nfproto ipv6 tcp dport 8080 counter drop\n}\n}";
const isUnanswered = (text: string) => (one: PacketEvidence) => one.kind === "unanswered" && one.endpoint === text;
const isAnswered = (text: string) => (one: PacketEvidence) => one.kind === "answered" && one.endpoint === text;

test("SYNs that are sent again count by endpoint and part of the clients, and nothing else does", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, observer, seen, sees, connect, probers } = await network(t);
  await topology.namespace("dead").exec(["nft", "-f", "-"], { input: DROP });
  for (const family of FAMILIES) {
    const silent = FROM.map((from) => connect(from, family, "dead", 2_500, 2));
    const served = await connect("client", family, "alive", 9_000, 20);
    assert.ok(served.every(({ ok }) => ok));
    await sees("a SYN that was sent again", isUnanswered(endpoint(family, "dead")));
    assert.ok((await Promise.all(silent)).flat().every(({ ok }) => !ok));
  }
  for (const from of FROM) probers[from].close();
  const counted = () =>
    FAMILIES.map((family) =>
      seen.reduce(
        (sum, one) => sum + (one.kind === "unanswered" && isUnanswered(endpoint(family, "dead"))(one) ? one.count : 0),
        0,
      ),
    );
  // What arrived at the pod, without the first SYN of each connection.
  const sentAgain = async () => {
    const { stdout } = await topology.namespace("dead").exec(["nft", "list", "table", "inet", "deaf"]);
    return Array.from(stdout.matchAll(/packets (\d+)/g), ([, packets]) => Number(packets) - 2 * FROM.length);
  };
  await until(
    "as many as arrived",
    async () => {
      seen.push(...(await observer.read()));
      return String(counted()) === String(await sentAgain());
    },
    { patienceMs: PATIENCE_MS, pauseMs: 100, evidence: () => JSON.stringify(seen) },
  );
  assert.ok(counted().every((count) => count >= 2 * FROM.length));
  const dead = FAMILIES.map((family) => endpoint(family, "dead"));
  assert.deepEqual(new Set(seen.map((one) => one.endpoint)), new Set(dead));
  for (const text of dead) {
    const sources = new Set(seen.filter(isUnanswered(text)).map((one) => one.kind === "unanswered" && one.source));
    assert.ok(sources.size <= FROM.length, [...sources].join());
  }
});

/** A pod that asks itself is masqueraded; what the node asks of itself passes its loopback link. */
test("an endpoint's own SYNs through its Service count once each", { skip: kernelSkip }, async (t) => {
  const { topology, node, load, observer } = await network(t);
  const ends = { dead: PODS.dead, "node-a": { ipv4: "10.200.0.2", ipv6: "fd00:200::2" } } as const;
  const names = Object.keys(ends) as (keyof typeof ends)[];
  const own = probersFor(topology, names);
  for (const name of names) await topology.namespace(name).exec(["nft", "-f", "-"], { input: DROP });
  for (const family of FAMILIES) {
    const word = family === "ipv4" ? "ip" : "ip6";
    const to = (name: (typeof names)[number]) =>
      `${word} daddr ${VIRTUAL[family]} tcp dport 90 dnat to ${joinHostPort(ends[name][family], 8080)}`;
    await load(`table ${word} self {
      chain prerouting { type nat hook prerouting priority -100; ${to("dead")}; }
      chain output { type nat hook output priority -100; ${to("node-a")}; }
      chain postrouting { type nat hook postrouting priority 100; ct status dnat ${word} saddr ${PODS.dead[family]} masquerade; }
    }`);
    for (const name of names) {
      const text = joinHostPort(ends[name][family], 8080);
      await observer.observe({ watched: new Set([text]), suspects: new Set() });
      await own[name].connect({ protocol: "TCP", address: VIRTUAL[family], port: 90, timeoutMs: 3_500, count: 2 });
      const found = await observer.read();
      const counted = found.reduce((sum, one) => sum + (one.kind === "unanswered" ? one.count : 0), 0);
      const { stdout } = await topology.namespace(name).exec(["nft", "list", "table", "inet", "deaf"]);
      const arrived = Array.from(stdout.matchAll(/packets (\d+)/g), ([, packets]) => Number(packets));
      assert.equal(counted, (arrived[FAMILIES.indexOf(family)] ?? 0) - 2, `${text}: ${JSON.stringify(found)}`);
      assert.ok(counted >= 2 && found.every((one) => one.endpoint === text));
      // One client.
      assert.equal(new Set(found.map((one) => one.kind === "unanswered" && one.source)).size, 1);
    }
  }
  // A refusal by a rule of this node is no answer.
  await node.exec(["nft", "-f", "-"], {
    input: DROP.replace("deaf", "refusing").replaceAll("drop", "reject with tcp reset"),
  });
  await node.exec(["nft", "delete", "table", "inet", "deaf"]);
  const all = new Set(FAMILIES.map((family) => joinHostPort(ends["node-a"][family], 8080)));
  await observer.observe({ watched: all, suspects: all });
  for (const family of FAMILIES) {
    const target = { protocol: "TCP", address: VIRTUAL[family], port: 90, timeoutMs: 9_000 } as const;
    const [refused] = await own["node-a"].connect(target);
    assert.match(JSON.stringify(refused), /REFUSED/);
  }
  assert.deepEqual(await observer.read(), []);
});

test("a pod whose link is cut, and one without a route, count as not answering", { skip: kernelSkip }, async (t) => {
  const { topology, node, sees, seen, observer, connect } = await network(t);
  await topology.namespace("dead").configure(["link set eth0 down"]);
  for (const family of FAMILIES) {
    const waiting = connect("client", family, "dead", 2_500, 2);
    await sees("a cut link", isUnanswered(endpoint(family, "dead")));
    await waiting;
  }
  await observer.read();
  seen.length = 0;
  await node.configure(
    FAMILIES.flatMap((family) => [`route del ${PODS.dead[family]}`, `route add unreachable ${PODS.dead[family]}`]),
  );
  for (const family of FAMILIES) {
    await connect("client", family, "dead", 1_000);
    await sees("this node's own error", isUnanswered(endpoint(family, "dead")));
  }
});

test("answers count only for suspects: a reset, and the kernel's answer for a stopped process, too", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, node, observer, seen, sees, connect } = await network(t);
  const program = 'require("node:net").createServer().listen(8081, "::", () => console.log("listening"))';
  const server = topology
    .namespace("alive")
    .spawn([process.execPath, "-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  assert.ok(server.stdout);
  await once(server.stdout, "data");
  server.kill("SIGSTOP");
  t.after(() => server.kill("SIGKILL"));
  const rules = async () => (await node.exec(["nft", "list", "ruleset"])).stdout;
  assert.doesNotMatch(await rules(), /ct direction reply/);
  for (const family of FAMILIES) {
    const suspects = new Set((["closed", "stopped"] as const).map((one) => endpoint(family, one)));
    await observer.observe({ watched: new Set(ALL), suspects });
    assert.ok((await connect("client", family, "alive", 9_000)).every(({ ok }) => ok));
    await connect("client", family, "closed", 9_000);
    await sees("a reset", isAnswered(endpoint(family, "closed")));
    await connect("node-a", family, "stopped", 1_500);
    await sees("an answer of the kernel", isAnswered(endpoint(family, "stopped")));
    assert.match(await rules(), /ct direction reply/);
  }
  assert.ok(
    seen.every(({ kind }) => kind === "answered"),
    JSON.stringify(seen),
  );
  assert.ok(!seen.some((one) => FAMILIES.some((family) => one.endpoint === endpoint(family, "alive"))));
  await observer.observe({ watched: new Set(ALL), suspects: new Set() });
  assert.doesNotMatch(await rules(), /ct direction reply|elements = .*packets/);
});

test("connections that wait are answered by another endpoint once theirs is forgotten", {
  skip: kernelSkip,
}, async (t) => {
  const { topology, node, load, observer, seen, sees, connect } = await network(t);
  const conntrack = inNetworkNamespace(node.path, openConntrack);
  t.after(() => conntrack.close());
  for (const family of FAMILIES) {
    const dead = endpoint(family, "dead");
    assert.ok((await connect("client", family, "dead", 9_000)).every(({ ok }) => ok));
    await topology.namespace("dead").exec(["nft", "-f", "-"], { input: DROP });
    const waiting = Promise.all([
      connect("client", family, "dead", 30_000, 2),
      connect("node-a", family, "dead", 30_000),
    ]);
    await sees("connections that wait", isUnanswered(dead));
    await load(rulesOf(family, "alive"));
    await observer.read();
    seen.length = 0;
    await sees("that new rules do not help them", isUnanswered(dead));
    assert.equal(await inNetworkNamespace(node.path, () => forgetUnanswered(conntrack, dead)), 3);
    const answers = (await waiting).flat();
    assert.ok(
      answers.every((one) => one.ok && one.pod === "alive"),
      JSON.stringify(answers),
    );
    // The connection that was answered before is still known.
    const known = await node.exec(["conntrack", "-L", "-f", family, "-p", "tcp", "-r", PODS.dead[family]]);
    assert.match(known.stdout, /dport=82 .*ASSURED/);
    assert.equal(await inNetworkNamespace(node.path, () => forgetUnanswered(conntrack, dead)), 0);
    await topology.namespace("dead").exec(["nft", "delete", "table", "inet", "deaf"]);
  }
});

test("without translation, connections to the endpoint itself count", { skip: kernelSkip }, async (t) => {
  const { topology, sees, probers } = await network(t, { isTranslated: false });
  await topology.namespace("dead").exec(["nft", "-f", "-"], { input: DROP });
  for (const family of FAMILIES) {
    const target = { protocol: "TCP", address: PODS.dead[family], port: 8080 } as const;
    const waiting = (["node-a", "client"] as const).map((from) =>
      probers[from].connect({ ...target, timeoutMs: 1_500 }),
    );
    await sees("a direct connection", isUnanswered(endpoint(family, "dead")));
    await Promise.all(waiting);
  }
});

test("a deleted table is made again, and one that a process left is replaced or removed", {
  skip: kernelSkip,
}, async (t) => {
  const { node, observer } = await network(t);
  const tables = async () => (await node.exec(["nft", "list", "tables"])).stdout;
  const listed = async () =>
    (await node.exec(["nft", "list", "ruleset"])).stdout.replace(/table ip6? service[\s\S]*/, "");
  const before = await listed();
  await node.exec(["nft", "delete", "table", "ip", UNANSWERED_TABLE]);
  await node.exec(["nft", "flush", "set", "ip6", UNANSWERED_TABLE, "watched"]);
  assert.deepEqual(await observer.read(), []);
  await observer.observe({ watched: new Set(), suspects: new Set() });
  await observer.observe({ watched: new Set(ALL), suspects: new Set() });
  const sorted = (text: string) => text.split(/[\s,]+/).toSorted();
  assert.deepEqual(sorted(await listed()), sorted(before));
  const second = await inNetworkNamespace(node.path, () => openUnansweredObserver("IPv4", true));
  await second.close();
  assert.match(await tables(), /ip6 kube-proxy-unanswered/);
  assert.doesNotMatch(await tables(), /ip kube-proxy-unanswered/);
  assert.ok(await inNetworkNamespace(node.path, () => deleteTables(UNANSWERED_TABLE, silentLogger)));
  assert.doesNotMatch(await tables(), /unanswered/);
  // As before: a saved table loads again.
  await node.exec(["nft", "-f", "-"], { input: before });
  assert.deepEqual(sorted(await listed()), sorted(before));
});
