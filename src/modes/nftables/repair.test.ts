import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryNftKernel } from "../../../testkit/fakes/nftables/memory-nftables.ts";
import "../../async/testing/test-yielder.ts";
import { TransactionDraft } from "./draft.ts";
import { LAYOUT_NAMES, type LayoutName } from "./layout-name.ts";
import { LAYOUTS, type Layout } from "./layouts.ts";
import { CHAINS } from "./names.ts";
import { repairSets } from "./reconcile.ts";
import { TableState } from "./table-state.ts";
import { CONFIGS, operationText } from "./testing/backend-rig.ts";

async function repair(name: LayoutName, damaged: readonly string[]): Promise<{ plans: number; operations: string[] }> {
  let plans = 0;
  const layout: Layout = {
    ...LAYOUTS[name],
    planStatic(...premises) {
      plans += 1;
      return LAYOUTS[name].planStatic(...premises);
    },
  };
  const config = CONFIGS.IPv4;
  const facts = { zone: undefined, nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [] } as const;
  const state = new TableState({ layout, config, facts });
  state.settleStatic();
  plans = 0;
  const draft = new TransactionDraft();
  const isDone = await repairSets(draft, new Set(damaged), {
    nft: new MemoryNftKernel("ip").connect(),
    state,
    signal: new AbortController().signal,
  });
  assert.ok(isDone);
  state.changeStatic(draft, new Set(damaged));
  return { plans, operations: Array.from(draft.operations(), operationText) };
}

for (const layout of LAYOUT_NAMES) {
  test(`${layout}: a sync without damage does not plan the fixed rules`, async () => {
    assert.deepEqual(await repair(layout, []), { plans: 0, operations: [] });
  });

  test(`${layout}: a damaged fixed chain is planned once and written again`, async () => {
    const { plans, operations } = await repair(layout, [CHAINS.services]);
    assert.equal(plans, 1);
    assert.ok(operations.length > 0);
    for (const operation of operations) assert.ok(operation.endsWith(CHAINS.services), operation);
  });
}
