/**
 * Every kind of address × traffic policies × where the endpoints are × client position × protocol × family: which pods
 * answer and which source address they see, or that none does and how. One network and one daemon for all.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { differenceFrom } from "./asking.ts";
import { FAMILIES } from "./cluster-objects.ts";
import { DESTINATIONS, expected, POSITIONS } from "./expected.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { type Row, rows } from "./matrix-rows.ts";
import { ALL_MODES, type Mode, protocolsOf } from "./modes.ts";

/** @returns a line for every cell of the row that differs from the table. */
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
