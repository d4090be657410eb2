/** Random changes under senders that never pause: at the end no flow contradicts the rules. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { HelperThread } from "../../../testkit/net/helper-thread.ts";
import fc from "../../../testkit/support/fast-check.ts";
import { until } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import {
  addressesOf,
  clusterOf,
  FAMILIES,
  type ServiceSpec,
  servingPods,
  TERMINATING,
  UNREADY,
} from "./cluster-objects.ts";
import { namespaceAt } from "./expected.ts";
import { addressOf, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, protocolsOf, traitsOf } from "./modes.ts";
import type { SendersReply, SendersRequest } from "./senders-program.ts";

const PROGRAM = new URL("senders-program.ts", import.meta.url);
const NUMBERS = [1, 2, 3] as const;
const SENDERS = 20;
const CHANGES = 12;
/** Flows without a rule end within a second, and are silent from then on. */
const SILENCE_MS = 1500;
const PODS = ["local-1", "local-2", "remote-1"] as const;

type Pod = (typeof PODS)[number];
type Fate = "absent" | "ready" | "terminating" | "unready";
/** Undefined: there is no such Service. */
type Wanted = Readonly<Record<Pod, Fate>> | undefined;

const fate = fc.constantFrom<Fate>("absent", "ready", "ready", "terminating", "unready");
const service = fc.option(fc.record({ "local-1": fate, "local-2": fate, "remote-1": fate }), {
  nil: undefined,
  freq: 5,
});
const state = fc.tuple(service, service, service);

function specOf(wanted: Wanted, number: number): readonly ServiceSpec[] {
  if (wanted === undefined) return [];
  const endpoints = PODS.flatMap((pod): ServiceSpec["endpoints"] => {
    const own = wanted[pod];
    if (own === "absent") return [];
    return [own === "ready" ? pod : { pod, conditions: own === "terminating" ? TERMINATING : UNREADY }];
  });
  return [{ name: `dns-${number}`, number, endpoints }];
}

/** The pods that may answer: every endpoint that serves, ready or not. */
const answering = (wanted: Wanted): readonly Pod[] =>
  PODS.filter((pod) => wanted?.[pod] === "ready" || wanted?.[pod] === "terminating");

for (const mode of ALL_MODES) {
  if (!protocolsOf(mode).includes("UDP")) continue;
  test(`${mode}: after ${CHANGES} random changes no flow contradicts the rules`, { skip: kernelSkip }, async (t) => {
    const { seed = Date.now() % 1_000_000 } = fc.readConfigureGlobal() ?? {};
    t.diagnostic(`seed ${seed}`);
    const all: Wanted = { "local-1": "ready", "local-2": "ready", "remote-1": "ready" };
    const network = await flowNetwork(
      t,
      mode,
      NUMBERS.flatMap((number) => specOf(all, number)),
    );
    const { daemon, topology, cgroup } = network;
    const senders = NUMBERS.map((number) => {
      const pod = new HelperThread<SendersRequest, SendersReply>(
        topology.namespace(namespaceAt.pod),
        PROGRAM,
        "",
        cgroup,
      );
      const client = new HelperThread<SendersRequest, SendersReply>(
        topology.namespace(namespaceAt["off-node client"]),
        PROGRAM,
      );
      return { number, threads: [pod, client] as const };
    });
    for (const { number, threads } of senders) {
      for (const family of FAMILIES) {
        for (const [thread, to] of [
          [threads[0], "cluster IP"],
          [threads[1], "node port"],
        ] as const) {
          const { address, port } = addressOf(number, to, "UDP", family);
          await thread.ask({ kind: "start", family, address, port, count: SENDERS });
        }
      }
    }
    const heard = async (threads: (typeof senders)[number]["threads"]): Promise<Readonly<Record<string, number>>> => {
      const [one, other] = await Promise.all(
        threads.map(async (thread) => (await thread.ask({ kind: "look" })).lastMs),
      );
      return Object.fromEntries(PODS.map((pod) => [pod, Math.max(one?.[pod] ?? 0, other?.[pod] ?? 0)]));
    };
    const states = fc.sample(state, { seed, numRuns: CHANGES });
    // Some changes come while the previous one is being written.
    for (const [at, wanted] of states.entries()) {
      daemon.writeObjects(clusterOf(wanted.flatMap((one, index) => specOf(one, index + 1))));
      await sleep((at % 3) * 150);
    }
    const last = states.at(-1) ?? assert.fail("no state");
    for (const { number, threads } of senders) {
      const may = answering(last[number - 1]);
      const isSilent = async () => {
        const lastMs = await heard(threads);
        return PODS.every((pod) => may.includes(pod) || Date.now() - (lastMs[pod] ?? 0) > SILENCE_MS);
      };
      const evidence = () => `service ${number}, where ${may.join(", ") || "none"} may answer; seed ${seed}`;
      await until("stale flows to end", isSilent, { patienceMs: 10_000, evidence });
      if (last[number - 1] !== undefined && PODS.some((pod) => last[number - 1]?.[pod] === "ready")) {
        const isServed = async () =>
          Object.entries(await heard(threads)).some(
            ([pod, ms]) => may.some((one) => one === pod) && Date.now() - ms < SILENCE_MS,
          );
        await until("answers", isServed, { patienceMs: 10_000, evidence });
      }
    }
    // What conntrack says, if it knows the endpoint.
    if (traitsOf[mode].carriesTraffic) return;
    const contradicting = async (): Promise<readonly string[]> => {
      const lines = await Promise.all(
        FAMILIES.map(async (family) => {
          const { stdout } = await daemon.namespace.exec(["conntrack", "-L", "-f", family.toLowerCase(), "-p", "udp"]);
          return stdout.split("\n").filter((line) => isWrong(line, family, last));
        }),
      );
      return lines.flat();
    };
    let wrong: readonly string[] = [];
    const isRight = async () => {
      wrong = await contradicting();
      return wrong.length === 0;
    };
    await until("entries to agree with the rules", isRight, {
      ...{ patienceMs: 10_000, evidence: () => `${wrong.join("\n")} seed ${seed}` },
    });
  });
}

/** A conntrack entry that leads from a Service to an endpoint that may not answer there. */
function isWrong(line: string, family: (typeof FAMILIES)[number], states: readonly Wanted[]): boolean {
  const [, asked = "", port = "", endpoint = ""] = / dst=(\S+) .*?dport=(\d+) .*? src=(\S+) /.exec(line) ?? [];
  const number = NUMBERS.find((one) => {
    const { "cluster IP": own, nodePort } = addressesOf(one);
    return (asked === own[family] && port === "80") || port === String(nodePort);
  });
  const pod = PODS.find((one) => endpoint === servingPods[one].ipv4 || endpoint === servingPods[one].ipv6);
  return number !== undefined && pod !== undefined && !answering(states[number - 1]).includes(pod);
}
