/** `kube-proxy flows`: every connection that clients make is named, with how it ended. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync } from "node:child_process";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { joinHostPort } from "../../../src/net/ip.ts";
import type { NamedFlow } from "../../../src/tools/explain/flows.ts";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { until } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { clusterOf, FAMILIES, type ServiceSpec, servingPods } from "./cluster-objects.ts";
import { namespaceAt, type Position, sourceAddress } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { HeldConnection } from "./held-connection.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";

const CONNECTIONS = 20;

/** Runs beside the test; its lines so far. */
class Watcher {
  readonly #child: ChildProcess;
  errors = "";
  #text = "";

  constructor(namespace: NetworkNamespace, args: readonly string[]) {
    const argv: [string, ...string[]] = [KUBE_PROXY, "flows", "--watch", "-o", "json", ...args];
    this.#child = namespace.spawn(argv, { stdio: ["ignore", "pipe", "pipe"] });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#text += text;
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.errors += text;
    });
  }

  get flows(): readonly NamedFlow[] {
    const whole = this.#text.slice(0, this.#text.lastIndexOf("\n") + 1);
    return whole
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as NamedFlow);
  }

  end(): void {
    this.#child.kill("SIGTERM");
  }
}

for (const mode of ALL_MODES) {
  if (!protocolsOf(mode).includes("TCP")) continue;
  /** Connections are polled every second: short ones are missed, or seen without their endpoint. */
  const isLooked = traitsOf[mode].carriesTraffic || traitsOf[mode].runsInCgroup === true;
  test(`${mode}: connections have names`, { skip: kernelSkip }, async (t) => {
    const services: readonly ServiceSpec[] = [
      { name: "web", number: 1, endpoints: ["local-1", "remote-1"] },
      { name: "empty", number: 2, endpoints: [] },
    ];
    const socket = join(execFileSync("mktemp", ["-d"], { encoding: "utf8" }).trim(), "socket");
    const network = await flowNetwork(t, mode, services, { args: [`--inspect-socket=${socket}`] });
    const { daemon, probers, topology, cgroup } = network;
    const { namespace } = daemon;
    namespace.sysctl({
      ...{ "net.netfilter.nf_conntrack_acct": 1, "net.netfilter.nf_conntrack_tcp_timeout_time_wait": 1 },
      ...{ "net.netfilter.nf_conntrack_tcp_timeout_close": 1, "net.netfilter.nf_conntrack_udp_timeout": 1 },
      ...{ "net.netfilter.nf_conntrack_tcp_timeout_fin_wait": 1, "net.netfilter.nf_conntrack_tcp_timeout_last_ack": 1 },
    });
    const ask = async (...args: readonly string[]): Promise<readonly NamedFlow[]> => {
      const argv: [string, ...string[]] = [KUBE_PROXY, "flows", "-o", "json", ...args];
      const { stdout } = await namespace.exec(argv);
      return stdout.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as NamedFlow]));
    };

    await t.test("those that live, from a daemon and from manifests with the names of pods", async () => {
      const held: HeldConnection[] = [];
      for (const family of FAMILIES) {
        const { address, port, protocol } = addressOf(1, "cluster IP", "TCP", family);
        const pod = topology.namespace(namespaceAt.pod);
        for (let count = 0; count < CONNECTIONS; count += 1) {
          held.push(await HeldConnection.open(pod, { protocol, address, port }, cgroup));
        }
      }
      const all = await ask("flows/web", "--socket", socket);
      assert.equal(all.length, held.length);
      for (const family of FAMILIES) {
        const one = await ask("flows/web:tcp", "--from", sourceAddress("pod", family), "--socket", socket);
        assert.equal(one.length, CONNECTIONS, family);
      }
      for (const flow of all) {
        assert.deepEqual([flow.servicePort, flow.state, flow.isStale], ["flows/web:tcp", "ESTABLISHED", false]);
        assert.ok((flow.sent?.packets ?? 0) >= 2, "accounting is on");
        assert.equal(flow.rttMs !== null, cgroup !== undefined, "of sockets only");
      }
      const named = await ask("flows/web", "-f", daemon.manifests, "--socket", socket);
      const pods = [...new Set(named.map(({ endpointPod }) => endpointPod))].sort();
      assert.deepEqual([named.length, pods], [held.length, ["flows/local-1", "flows/remote-1"]]);
      const toOne = await ask("--to", "flows/local-1", "-f", daemon.manifests, "--socket", socket);
      const { ipv4, ipv6 } = servingPods["local-1"];
      assert.ok(
        toOne.length > 0 &&
          toOne.every(({ endpoint }) => endpoint?.includes(ipv4) === true || endpoint?.includes(ipv6) === true),
      );
      const used = await Promise.all(held.map((one) => one.use()));
      const byPod = (pod: string) => used.filter((name) => name === pod).length;
      assert.equal(toOne.length, byPod("local-1"), "what clients say");
      assert.deepEqual(await ask("--stale", "--state", "ESTABLISHED", "--socket", socket), []);
      // Linux has events for them if anything on the machine listened when they began, in any namespace: they would end below.
      await until("those that were held to go", async () => (await ask("flows/web", "--socket", socket)).length === 0);
    });

    const lasting = async (t: TestContext): Promise<void> => {
      const watcher = new Watcher(namespace, ["--socket", socket]);
      t.after(() => watcher.end());
      const told = () => watcher.flows.filter(({ protocol }) => protocol === "TCP");
      // The connections that show that the watch goes on are of the other family: a late event of one is not taken for one of the rest.
      const web = () => told().filter(({ client }) => !client.startsWith("["));
      await until("the watch", async () => {
        const { address, port } = addressOf(1, "cluster IP", "TCP", "IPv6");
        const held = await HeldConnection.open(
          topology.namespace(namespaceAt.pod),
          { protocol: "TCP", address, port },
          cgroup,
        );
        await sleep(1500);
        await held.use();
        return told().length > 0;
      });
      const held: HeldConnection[] = [];
      for (const position of ["pod", "node", "off-node client"] as const) {
        const target = addressOf(1, position === "off-node client" ? "node port" : "cluster IP", "TCP", "IPv4");
        const inside = position === "off-node client" ? undefined : cgroup;
        for (let count = 0; count < CONNECTIONS; count += 1) {
          held.push(await HeldConnection.open(topology.namespace(namespaceAt[position]), target, inside));
        }
      }
      const begun = () => web().filter(({ ended }) => ended === null);
      const evidence = () => `${begun().length} of ${held.length} began; ${watcher.errors}`;
      await until("their beginnings", () => begun().length >= held.length, { patienceMs: 20_000, evidence });
      const used = await Promise.all(held.map((one) => one.use()));
      const clients = new Set(begun().map(({ client }) => client));
      const ended = () => web().filter((one) => one.ended !== null && clients.has(one.client));
      const areEnded = async () => {
        // The kernel drops expired entries when its table is read, or within a minute.
        await namespace.exec(["conntrack", "-L"]);
        return ended().length >= held.length;
      };
      await until("their ends", areEnded, { patienceMs: 60_000, evidence });
      for (const pod of ["local-1", "remote-1"] as const) {
        const answered = ended().filter(({ endpoint }) => endpoint?.startsWith(`${servingPods[pod].ipv4}:`));
        assert.equal(answered.length, used.filter((name) => name === pod).length, pod);
        assert.ok(answered.every((one) => one.ended === "answered" && one.ageSeconds !== null));
      }
    };

    const short = async (t: TestContext): Promise<void> => {
      const watcher = new Watcher(namespace, ["--socket", socket]);
      t.after(() => watcher.end());
      const clients: readonly Position[] = ["pod", "node", "off-node client"];
      await until("the watch", async () => {
        const { address, port } = addressOf(1, "cluster IP", "UDP", "IPv4");
        await probers.pod.connect({ protocol: "UDP", address, port, count: 1, timeoutMs: 5000 });
        return watcher.flows.length > 0;
      });
      let asked = 0;
      for (const position of clients) {
        for (const family of FAMILIES) {
          const target = addressOf(1, position === "off-node client" ? "node port" : "cluster IP", "TCP", family);
          const answers = await probers[position].connect({ ...target, count: CONNECTIONS, timeoutMs: 8000 });
          assert.ok(answers.every(({ ok }) => ok));
          asked += answers.length;
        }
      }
      const tcp = () => watcher.flows.filter(({ protocol }) => protocol === "TCP");
      const answered = () => tcp().filter(({ ended }) => ended === "answered");
      const isTold = async () => {
        // Reading the table removes expired entries. By itself the kernel does so within a minute.
        await ask("flows/web", "--socket", socket);
        return answered().length >= asked;
      };
      await until("the ends", isTold, {
        patienceMs: 40_000,
        evidence: () => `${answered().length} of ${asked}; ${watcher.errors}`,
      });
      const begun = tcp().filter(({ ended }) => ended === null);
      assert.equal(begun.length, asked);
      assert.deepEqual(new Set(begun.map(({ client }) => client)), new Set(answered().map(({ client }) => client)));
      for (const { sent, received, ageSeconds, servicePort } of answered()) {
        assert.equal(servicePort, "flows/web:tcp");
        assert.ok((sent?.bytes ?? 0) > 0 && (received?.bytes ?? 0) > 0 && ageSeconds !== null);
      }
      const silent = watcher.flows.filter(({ ended }) => ended === "never answered" || ended === "refused");
      assert.deepEqual(silent, []);
    };

    const stale = async (): Promise<void> => {
      const held: { readonly place: string; readonly connection: HeldConnection }[] = [];
      for (const family of FAMILIES) {
        for (const to of ["cluster IP", "load balancer", "node port"] as const) {
          const position = to === "cluster IP" ? "pod" : "off-node client";
          const target = addressOf(1, to, "TCP", family);
          for (let count = 0; count < CONNECTIONS; count += 1) {
            const inside = position === "pod" ? cgroup : undefined;
            const connection = await HeldConnection.open(topology.namespace(namespaceAt[position]), target, inside);
            held.push({ place: joinHostPort(target.address, target.port), connection });
          }
          // Refused, or without an answer: there is no endpoint.
          for (const prober of [probers.node, probers[position]]) {
            await prober.connect({ ...addressOf(2, to, "TCP", family), count: 2, timeoutMs: 200 });
          }
        }
      }
      assert.deepEqual(await ask("--stale", "--socket", socket), [], "all live, or are refused");
      assert.deepEqual(await ask("--stale", "-f", daemon.manifests), [], "the mode is not known");
      const [kept, gone] = ["local-1", "remote-1"] as const;
      const [first, ...rest] = services;
      assert.ok(first !== undefined);
      daemon.writeObjects(clusterOf([{ ...first, endpoints: [kept] }, ...rest]));
      const areFound = async () => (await ask("--stale", "--state", "ESTABLISHED", "--socket", socket)).length > 0;
      await until("the change", areFound);
      const found = await ask("--stale", "--state", "ESTABLISHED", "--socket", socket);
      const used = await Promise.all(
        held.map(async ({ place, connection }) => ({ place, pod: await connection.use() })),
      );
      const count = (places: readonly string[]) => [...places].sort();
      assert.deepEqual(
        count(found.map(({ frontend }) => frontend)),
        count(used.flatMap(({ place, pod }) => (pod === gone ? [place] : []))),
        "those to the pod that is gone, by what clients say",
      );
    };

    if (isLooked) await t.test("beginnings and ends of those that last, and where they led", lasting);
    else await t.test("beginnings and ends as clients met them", short);
    await t.test("of live, refused and stale ones of each kind, just the stale ones are stale", stale);
  });
}
