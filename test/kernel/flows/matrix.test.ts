/**
 * Every kind of address × traffic policies × where the endpoints are × who asks × protocol × family: which pods answer
 * and which source address they see, or that none does and how. One network and one daemon for all.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { FAMILIES, type ServiceSpec, type ServingPod } from "./cluster-objects.ts";
import { DESTINATIONS, expected, POSITIONS, type Policy, type ServiceFacts } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, type Mode, protocolsOf } from "./modes.ts";

const POLICIES: readonly Policy[] = ["Cluster", "Local"];

const placements: Readonly<Record<string, readonly ServingPod[]>> = {
  "pods on both nodes": ["local-1", "local-2", "remote-1"],
  "a pod on the other node only": ["remote-1"],
  "no pods": [],
};

interface Row extends ServiceSpec, ServiceFacts {
  readonly title: string;
}

const rows: readonly Row[] = POLICIES.flatMap((external) =>
  POLICIES.flatMap((internal) =>
    Object.entries(placements).map(([place, pods]) => ({ external, internal, place, pods })),
  ),
).map(({ external, internal, place, pods }, index) => ({
  title: `external policy ${external}, internal policy ${internal}, ${place}`,
  name: `row-${index}`,
  number: index + 1,
  external,
  internal,
  pods,
  endpoints: pods,
  spec: { externalTrafficPolicy: external, internalTrafficPolicy: internal },
}));

/** @returns a line for every cell of the row that is not as the table says. */
async function wrongCells(mode: Mode, row: Row, { probers }: FlowNetwork): Promise<string[]> {
  const lines = FAMILIES.flatMap((family) =>
    protocolsOf(mode).flatMap((protocol) =>
      DESTINATIONS.flatMap((to) =>
        POSITIONS.map(async (from) => {
          const target = addressOf(row.number, to, protocol, family);
          const difference = await differenceFrom(
            expected(mode, row, { to, from, family, protocol, number: row.number }),
            probers[from],
            target,
          );
          return difference === undefined ? undefined : `${from} to ${to}, ${protocol} over ${family}: ${difference}`;
        }),
      ),
    ),
  );
  return (await Promise.all(lines)).filter((line) => line !== undefined);
}

for (const mode of ALL_MODES) {
  test(`${mode}: the packet table`, { skip: kernelSkip, concurrency: true }, async (t) => {
    const network = await flowNetwork(t, mode, rows);
    await Promise.all(
      rows.map((row) => t.test(row.title, async () => assert.deepEqual(await wrongCells(mode, row, network), []))),
    );
  });
}
