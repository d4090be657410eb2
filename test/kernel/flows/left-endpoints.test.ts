/** An endpoint that stops answering is left out, connections that wait for it are saved, and it comes back. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import type { ProbeAnswer } from "../../../testkit/net/messages.ts";
import { nodeA } from "../../../testkit/net/topology-spec.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { commandsBeside } from "../node-commands.ts";
import { outcomeOf } from "./asking.ts";
import { clusterOf, FAMILIES, type ServingPod, servingPods, TARGET_PORTS } from "./cluster-objects.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";

const DEAD = servingPods["remote-1"];
const PODS = Object.keys(servingPods) as ServingPod[];
const DROP = ["INPUT", "-p", "tcp", "--dport", String(TARGET_PORTS.TCP), "-j", "DROP"];

for (const mode of ALL_MODES) {
  // In userspace mode the proxy itself connects to the endpoints.
  if (!protocolsOf(mode).includes("TCP") || mode === "userspace" || mode === "ipvs") continue;
  test(`${mode}: an endpoint that does not answer is left out`, { skip: kernelSkip }, async (t) => {
    const socket = join(execFileSync("mktemp", ["-d"], { encoding: "utf8" }).trim(), "socket");
    const web = { name: "web", number: 1, endpoints: PODS } as const;
    const { daemon, probers, topology } = await flowNetwork(t, mode, [web], {
      args: [`--inspect-socket=${socket}`],
      config: { connections: { leaveFor: "1s" } },
    });
    const asking = clusterOf([web]).map((object) => {
      const { kind, metadata, ...others } = object as { readonly kind: string; readonly metadata: object };
      const annotations = { "kube-proxy-ts/leave-unanswered": "true" };
      return kind === "Service" ? { kind, metadata: { ...metadata, annotations }, ...others } : object;
    });
    assert.equal(await daemon.metric("kubeproxy_left_endpoints"), undefined, "nobody asked");
    const rules = async (): Promise<string> => {
      const lines = (await traitsOf[mode].rules(daemon)).split("\n");
      return lines.filter((line) => !line.includes("unanswered")).join("\n");
    };
    const usual = await rules();
    daemon.writeObjects(asking);
    const left = () => daemon.metric("kubeproxy_left_endpoints");
    await daemon.until("the daemon watches", async () => (await left()) === 0);
    /** From outside: there, rules choose the endpoint in ebpf mode, too. */
    const round = async (family: (typeof FAMILIES)[number], timeoutMs = stretched(20_000)): Promise<ProbeAnswer[]> => {
      const target = addressOf(1, "node port", "TCP", family);
      return [...(await probers["off-node client"].connect({ ...target, count: 6, timeoutMs }))];
    };
    for (const family of FAMILIES) assert.ok((await round(family)).every(({ ok }) => ok));
    // Its own connection counts only where it worked before.
    for (const [family, address] of [
      ["ipv4", DEAD.ipv4],
      ["ipv6", DEAD.ipv6],
    ] as const) {
      await daemon.until(`its own connection to ${address}`, async () => {
        const { stdout } = await daemon.namespace.exec(["conntrack", "-L", "-f", family, "-p", "tcp", "-d", address]);
        return /\[ASSURED\]/.test(stdout);
      });
    }

    const pod = topology.namespace(DEAD.name);
    for (const tool of ["iptables", "ip6tables"]) await pod.exec([tool, "-A", ...DROP]);
    const cutMs = Date.now();
    const waiting: Promise<ProbeAnswer[]>[] = [];
    await daemon.until("both addresses are left out", async () => {
      for (const family of FAMILIES) waiting.push(round(family));
      await sleep(200);
      return (await left()) === 2;
    });
    t.diagnostic(`left out after ${Date.now() - cutMs} ms`);
    const saved = (await Promise.all(waiting)).flat();
    assert.deepEqual(saved.filter(({ ok }) => !ok).map(outcomeOf), [], "those that waited are saved");
    for (const family of FAMILIES) assert.ok((await round(family)).every(({ ok }) => ok));
    const why = "since .* not answered";
    const { stdout } = await daemon.namespace.exec([KUBE_PROXY, "status", "--socket", socket]);
    assert.match(stdout, new RegExp(`${DEAD.ipv4}:8080 of flows/web:tcp/TCP is left out ${why}`));
    assert.ok((await rules()) !== usual, "the rules leave it out");
    // Commands that look at this kernel ask the daemon at the usual place.
    const here = commandsBeside(daemon, nodeA.name, socket);
    const run = async (...argv: string[]): Promise<string> => (await here(...argv)).stdout;
    assert.match(await run("explain", "flows/web:tcp"), new RegExp(`${nodeA.name} leaves it out: ${why}`));
    const decided = `Decided by the daemon here, and no difference:\n +${DEAD.ipv4}:8080 of flows/web:tcp/TCP is left out ${why}`;
    assert.match(await run("diff"), new RegExp(`^No differences\\.\n${decided}`));
    const proof = await run("prove");
    assert.match(proof, /IPv6\): the rules treat every packet as the Services ask/);
    assert.match(proof, new RegExp(decided));
    const alone = commandsBeside(daemon, nodeA.name, undefined);
    const told = await Promise.all([alone("diff"), alone("prove", "--family", "ipv4")]);
    assert.deepEqual(
      told.map(({ status }) => status),
      [1, 1],
      "without the daemon it is a difference",
    );

    for (const tool of ["iptables", "ip6tables"]) await pod.exec([tool, "-D", ...DROP]);
    await daemon.until("both are back", async () => {
      for (const family of FAMILIES) await round(family);
      return (await left()) === 0;
    });
    await daemon.until("connections to it", async () =>
      (await round("IPv4")).some((answer) => answer.ok && answer.pod === DEAD.name),
    );

    if (mode !== "nftables" && mode !== "iptables") return;
    for (const tool of ["iptables", "ip6tables"]) await pod.exec([tool, "-A", ...DROP]);
    await daemon.until("both are left out again", async () => {
      for (const family of FAMILIES) waiting.push(round(family));
      await sleep(200);
      return (await left()) === 2;
    });
    await Promise.all(waiting);
    assert.equal(await daemon.stop(), 0);
    assert.ok((await rules()) === usual, "a stop puts it back");
    const tables = await daemon.namespace.exec(["nft", "list", "tables"]);
    assert.doesNotMatch(tables.stdout, /unanswered/);
  });
}
