import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import type { ProbeAnswer } from "../net/messages.ts";
import { removeLeftoverNamespaces } from "../net/network-namespace.ts";
import { addServingPod, kernelSkip, probersFor, topologyFor } from "./topology.ts";

const local = { name: "local-pod", node: "node-a", ipv4: "10.180.0.10", ipv6: "fd00:10:180::10" };
const remote = { name: "remote-pod", node: "node-b", ipv4: "10.180.1.10", ipv6: "fd00:10:180:0:1::10" };

function outcomes(answers: readonly ProbeAnswer[]): string[] {
  return [...new Set(answers.map((answer) => (answer.ok ? `${answer.pod} saw ${answer.peer}` : answer.error)))].sort();
}

/** Whether the process exists and is not a zombie. */
function isRunning(pid: string): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

test("every client reaches pods of both nodes with its own address, over TCP and UDP, IPv4 and IPv6", {
  skip: kernelSkip,
}, async (t) => {
  const topology = await topologyFor(t);
  const listen = [
    { protocol: "TCP", port: 80 },
    { protocol: "UDP", port: 53 },
  ] as const;
  await Promise.all([addServingPod(topology, local, listen), addServingPod(topology, remote, listen)]);
  const probers = probersFor(topology, ["client", "client-pod"]);
  const own = {
    client: { ipv4: "10.200.0.100", ipv6: "fd00:200::100" },
    "client-pod": { ipv4: "10.180.0.250", ipv6: "fd00:10:180::250" },
  };
  for (const from of ["client", "client-pod"] as const) {
    for (const family of ["ipv4", "ipv6"] as const) {
      for (const pod of [local, remote]) {
        for (const { protocol, port } of listen) {
          const request = { protocol, address: pod[family], port, count: 3, timeoutMs: 3000 };
          const got = outcomes(await probers[from].connect(request));
          assert.deepEqual(got, [`${pod.name} saw ${own[from][family]}`], `${from} ${family} ${protocol}`);
        }
      }
    }
  }
});

test("a rejected request is told from a dropped one, even in bursts", { skip: kernelSkip }, async (t) => {
  const topology = await topologyFor(t);
  const node = topology.namespace("node-a");
  for (const [address, target] of [
    ["10.96.0.2", "REJECT"],
    ["10.96.0.3", "DROP"],
  ] as const) {
    await node.exec(["iptables", "-A", "FORWARD", "-d", address, "-j", target]);
  }
  const { client } = probersFor(topology, ["client"]);
  const burst = { port: 80, count: 80, timeoutMs: 800 };
  for (const protocol of ["TCP", "UDP"] as const) {
    assert.deepEqual(outcomes(await client.connect({ ...burst, protocol, address: "10.96.0.2" })), ["refused"]);
    assert.deepEqual(outcomes(await client.connect({ ...burst, protocol, address: "10.96.0.3" })), ["timeout"]);
  }
});

test("a backend stops listening where it is no longer told to", { skip: kernelSkip }, async (t) => {
  const topology = await topologyFor(t);
  const backend = await addServingPod(topology, local, [{ protocol: "TCP", port: 80 }]);
  const { client } = probersFor(topology, ["client"]);
  await backend.listen([{ protocol: "TCP", port: 81 }]);
  const ask = (port: number) => client.connect({ protocol: "TCP", address: local.ipv4, port, timeoutMs: 3000 });
  assert.deepEqual(outcomes(await ask(80)), ["refused"]);
  assert.deepEqual(outcomes(await ask(81)), ["local-pod saw 10.200.0.100"]);
});

test("what a killed run left, processes included, is removed by the next", { skip: kernelSkip }, async () => {
  const module = fileURLToPath(new URL("../net/topology.ts", import.meta.url));
  const program = `
    const { Topology } = await import(${JSON.stringify(module)});
    const topology = await Topology.create("killed");
    const child = topology.namespace("node-a").spawn(["sleep", "300"]);
    child.on("spawn", () => setTimeout(() => console.log(String(topology.name + " " + child.pid)), 50));
  `;
  const victim = spawn(process.execPath, ["--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [text] = (await once(victim.stdout, "data")) as [Buffer];
  const [name = "", sleeper = ""] = text.toString().trim().split(" ");
  assert.ok(existsSync(`/run/netns/${name}-node-a`));
  signalChild(victim, "SIGKILL");
  await once(victim, "exit");
  removeLeftoverNamespaces();
  assert.equal(existsSync(`/run/netns/${name}-node-a`), false);
  const deadline = Date.now() + 5000;
  while (isRunning(sleeper) && Date.now() < deadline) await sleep(5);
  assert.equal(isRunning(sleeper), false);
});
