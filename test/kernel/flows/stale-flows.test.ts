/** No flow leads where no rule would lead now: many senders that never pause, while their destinations are removed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import { stretched, until } from "../../../testkit/support/patience.ts";
import { waitedForProcessorMs } from "../../../testkit/support/processor-wait.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { addressesOf, clusterOf, FAMILIES, type ServiceSpec, servingPods, UNREADY } from "./cluster-objects.ts";
import { type Destination, namespaceAt } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";
import type { SendersReply, SendersRequest } from "./senders-program.ts";

const PROGRAM = new URL("senders-program.ts", import.meta.url);
/** In total. */
const SENDERS = 1000;
/** From a change to the last packet that goes to the old destination, on a quiet machine. */
const STALE_LIMIT_MS = 1000;
/** What is silent for this long has ended. */
const SILENCE_MS = 1500;
const PATIENCE_MS = 30_000;

type Senders = HelperThread<SendersRequest, SendersReply>;

/** Nine in ten in a pod, sending to a cluster IP; the others outside, to a node port and an external IP. */
async function startSenders({ topology, cgroup }: FlowNetwork, outside: readonly Destination[]): Promise<Senders[]> {
  const pod: Senders = new HelperThread(topology.namespace(namespaceAt.pod), PROGRAM, "", cgroup);
  const client: Senders = new HelperThread(topology.namespace(namespaceAt["off-node client"]), PROGRAM);
  for (const family of FAMILIES) {
    const inPod = addressOf(1, "cluster IP", "UDP", family);
    await pod.ask({ kind: "start", family, address: inPod.address, port: inPod.port, count: (SENDERS * 9) / 20 });
    for (const to of outside) {
      const { address, port } = addressOf(1, to, "UDP", family);
      await client.ask({ kind: "start", family, address, port, count: SENDERS / 20 / outside.length });
    }
  }
  return [pod, client];
}

/** When this pod last answered any of them. */
async function lastOf(senders: readonly Senders[], pod: string): Promise<number> {
  const replies = await Promise.all(senders.map((one) => one.ask({ kind: "look" })));
  return Math.max(0, ...replies.map(({ lastMs }) => lastMs[pod] ?? 0));
}

for (const mode of ALL_MODES) {
  if (!protocolsOf(mode).includes("UDP")) continue;
  const { carriesTraffic, runsInCgroup } = traitsOf[mode];
  test(`${mode}: the last stale packet of ${SENDERS} UDP senders`, { skip: kernelSkip }, async (t) => {
    const dns = (endpoints: ServiceSpec["endpoints"], spec = {}): ServiceSpec => ({
      ...{ name: "dns", number: 1, endpoints, spec },
    });
    const pins = runsInCgroup === true ? { pinFolder: `${(await testBpffs(t)).path}/kept` } : {};
    const network = await flowNetwork(t, mode, [dns(["local-1", "remote-1"])], pins);
    const { daemon } = network;
    const senders = await startSenders(network, carriesTraffic ? ["node port"] : ["node port", "external IP"]);
    const answers = (pod: string, sinceMs: number) =>
      until(`answers of ${pod}`, async () => (await lastOf(senders, pod)) > sinceMs, { patienceMs: PATIENCE_MS });
    await answers("local-1", 0);
    await answers("remote-1", 0);
    const foreign = await foreignFlow(network);

    /** Makes a change, waits until these pods are silent, and reports how long after it they were last heard. */
    const ends = async (what: string, pods: readonly string[], change: () => void | Promise<void>): Promise<void> => {
      await change();
      const changedMs = Date.now();
      // A proxy that carries the packets itself is busier the more there are, and waits for a processor as often as it gets one.
      const waitsMs = () => waitedForProcessorMs(daemon.pid ?? "self");
      const waitedMs = waitsMs();
      let [last, waits] = [changedMs, 0];
      const limit = changedMs + stretched(PATIENCE_MS);
      while (Date.now() - Math.max(last, changedMs) < SILENCE_MS && Date.now() < limit) {
        await sleep(100);
        const before = last;
        for (const pod of pods) last = Math.max(last, await lastOf(senders, pod));
        if (last > before) waits = waitsMs() - waitedMs;
      }
      const taken = `${last - changedMs} ms, ${Math.round(waits)} of them without a processor`;
      t.diagnostic(`${what}: the last stale packet after ${taken}`);
      assert.ok(last - changedMs - waits <= stretched(STALE_LIMIT_MS), `${what}: ${taken}`);
    };
    const write = (...services: readonly ServiceSpec[]) => daemon.writeObjects(clusterOf(services));

    await ends("an endpoint is gone", ["remote-1"], () => write(dns(["local-1"])));
    await answers("local-1", Date.now());
    await ends("none serves", ["local-1"], () => write(dns([{ pod: "local-1", conditions: UNREADY }])));
    write(dns(["local-1", "local-2"]));
    await answers("local-2", Date.now());
    await ends("its addresses are others", ["local-1", "local-2"], () =>
      write({ ...dns(["local-1", "local-2"]), number: 2 }),
    );
    write(dns(["local-1"]));
    await answers("local-1", Date.now());
    await ends("its ports are others", ["local-1"], () => {
      const ports = [{ name: "udp", protocol: "UDP", port: 81, targetPort: 5353, nodePort: 30099 }];
      write(dns(["local-1"], { ports }));
    });
    write(dns(["local-1", "remote-1"]));
    await answers("remote-1", Date.now());
    await ends("an endpoint goes while no process is here", ["remote-1"], async () => {
      await daemon.stop("SIGKILL");
      write(dns(["local-1"]));
      daemon.spawn();
      const before = Date.now();
      await daemon.synced();
      t.diagnostic(`the process was back after ${Date.now() - before} ms`);
    });
    await answers("local-1", Date.now());
    await ends("the Service is gone", ["local-1"], () => write());
    if (mode.startsWith("nftables")) {
      write(dns(["local-1"]));
      await answers("local-1", Date.now());
      await ends("the Service goes while no process is here", ["local-1"], async () => {
        await daemon.stop("SIGKILL");
        write();
        daemon.spawn();
        await daemon.synced();
      });
    }
    // Clients get no answers any more, and the kernel deletes a thousand entries one after the other.
    await until("entries to go", async () => (await contradicting(network)).length === 0, { patienceMs: PATIENCE_MS });
    assert.equal(await foreignFlow(network), foreign, "a flow of another program was ended");
  });
}

/** Entries that translate service addresses although the Service is gone. */
async function contradicting({ daemon }: FlowNetwork): Promise<readonly string[]> {
  const entries: string[] = [];
  for (const family of ["ipv4", "ipv6"]) {
    const { stdout } = await daemon.namespace.exec(["conntrack", "-L", "-f", family, "-p", "udp", "--dst-nat"]);
    entries.push(...stdout.split("\n"));
  }
  const own = Object.values(addressesOf(1)["cluster IP"]);
  return entries.filter((line) => own.some((address) => line.includes(`dst=${address} `)));
}

/** Another program's translation, with a node port's number: created at the first call. @returns the entry's identity. */
async function foreignFlow({ daemon }: FlowNetwork): Promise<string> {
  const run = async (...argv: [string, ...string[]]) => (await daemon.namespace.exec(argv)).stdout;
  const port = String(addressesOf(1).nodePort);
  const find = () => run("conntrack", "-L", "-p", "udp", "-s", "192.0.2.77", "-o", "id");
  if ((await find()) === "") {
    await run(
      ...(["conntrack", "-I", "-p", "udp", "-t", "600", "-s", "192.0.2.77", "--sport", "5000"] as const),
      ...["-d", "192.0.2.78", "--dport", port, "--dst-nat", `${servingPods["local-1"].ipv4}:5353`],
    );
  }
  return / id=(\d+)/.exec(await find())?.[1] ?? assert.fail("no entry");
}
