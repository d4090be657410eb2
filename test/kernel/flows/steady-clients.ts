/** Clients that must notice nothing: held connections, and continuous requests. */
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { Protocol } from "../../../src/net/protocol.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { outcomes } from "./asking.ts";
import { FAMILIES, PROTOCOLS } from "./cluster-objects.ts";
import { addressOf, type FlowNetwork } from "./flow-network.ts";
import { HeldConnection } from "./held-connection.ts";

/** Sends requests to a service continuously. @returns a function that stops and returns each distinct outcome other than an answer. */
export function askSteadily(
  { probers }: FlowNetwork,
  service: number,
  protocols: readonly Protocol[] = PROTOCOLS,
): () => Promise<string[]> {
  const troubles = new Set<string>();
  let asked = 0;
  let isRunning = true;
  const streams = FAMILIES.flatMap((family) =>
    protocols.map(async (protocol) => {
      const target = addressOf(service, "cluster IP", protocol, family);
      while (isRunning) {
        const answers = await probers.pod.connect({ ...target, count: 2, timeoutMs: stretched(8000) });
        for (const trouble of outcomes(answers.filter(({ ok }) => !ok)))
          troubles.add(`${protocol} ${family} ${trouble}`);
        asked += answers.length;
        await sleep(5);
      }
    }),
  );
  return async () => {
    isRunning = false;
    await Promise.all(streams);
    assert.ok(asked > 100, `only ${asked} requests were made`);
    return [...troubles];
  };
}

/** Connections from outside, to the cluster IP and the node port, in both families. */
export async function holdConnections({ topology }: FlowNetwork, service: number): Promise<HeldConnection[]> {
  const places = ["cluster IP", "node port"] as const;
  return await Promise.all(
    FAMILIES.flatMap((family) =>
      places.map((to) => HeldConnection.open(topology.namespace("client"), addressOf(service, to, "TCP", family))),
    ),
  );
}

/** Asserts that each of them still reaches a pod of the stable service. */
export async function assertAlive(held: readonly HeldConnection[]): Promise<void> {
  for (const pod of await Promise.all(held.map((connection) => connection.use())))
    assert.match(pod, /^(local|remote)-1$/);
}
