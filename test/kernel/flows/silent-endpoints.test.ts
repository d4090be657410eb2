/** An endpoint that never answers while another does is named by `services` and counted in /metrics, in every mode that can know. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { KUBE_PROXY } from "../../../testkit/needs/built-program.ts";
import { until } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { servingPods, TARGET_PORTS } from "./cluster-objects.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf } from "./modes.ts";

const SILENT = servingPods["remote-1"];

for (const mode of ALL_MODES) {
  // In userspace mode the proxy itself answers.
  if (!protocolsOf(mode).includes("TCP") || mode === "userspace") continue;
  test(`${mode}: an endpoint that never answers is told`, { skip: kernelSkip }, async (t) => {
    const socket = join(execFileSync("mktemp", ["-d"], { encoding: "utf8" }).trim(), "socket");
    const { daemon, probers, topology } = await flowNetwork(
      t,
      mode,
      [{ name: "web", number: 1, endpoints: ["local-1", "remote-1"] }],
      { args: [`--inspect-socket=${socket}`], config: { connections: { answerCheckPeriod: "1s" } } },
    );
    const silence = () => daemon.metric("kubeproxy_silent_endpoints");
    // From outside: there, rules choose the endpoint in ebpf mode, too.
    const ask = (count: number) => {
      const target = addressOf(1, "node port", "TCP", "IPv4");
      return probers["off-node client"].connect({ ...target, count, timeoutMs: 700 });
    };
    assert.ok((await ask(10)).every(({ ok }) => ok));
    await until("the first look", async () => (await silence()) === 0);

    const drop = ["INPUT", "-p", "tcp", "--dport", String(TARGET_PORTS.TCP), "-j", "DROP"];
    const pod = topology.namespace(SILENT.name);
    await pod.exec(["iptables", "-A", ...drop]);
    await daemon.namespace.exec(["conntrack", "-F"]);
    let unanswered = 0;
    while (unanswered < 3) unanswered += (await ask(8)).filter(({ ok }) => !ok).length;
    const named = new RegExp(`${SILENT.ipv4}:8080 has answered none of its \\d+ connections of flows/web:tcp`);
    let stderr = "";
    await until("the silent endpoint", async () => {
      // On a busy machine, some of the unanswered ones had only been slow.
      await ask(8);
      ({ stderr } = await daemon.namespace.exec([KUBE_PROXY, "services", "--socket", socket]));
      return named.test(stderr);
    });
    assert.doesNotMatch(stderr, new RegExp(`${servingPods["local-1"].ipv4}:8080 has answered none`));
    await until("the metric", async () => (await silence()) === 1);

    await pod.exec(["iptables", "-D", ...drop]);
    await until("an answer", async () => {
      await ask(8);
      return (await silence()) === 0;
    });
  });
}
