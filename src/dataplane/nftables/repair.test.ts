import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryNftKernel } from "../../../testkit/fakes/nftables/memory-nftables.ts";
import { testYielder } from "../../async/testing/test-yielder.ts";
import { ip } from "../../model/testing/records.ts";
import { planStatic } from "./compatible/plan-static.ts";
import { TransactionDraft } from "./draft.ts";
import { CHAINS } from "./names.ts";
import { repairShared } from "./repair.ts";
import { TableState } from "./table-state.ts";
import { operationText } from "./testing/backend-rig.ts";

const STATIC_PLAN = planStatic(
  {
    family: "IPv4",
    nodeName: "node-a",
    nodeIP: ip("192.168.0.2"),
    masqueradeMark: 0x4000,
    masqueradeAll: false,
    detector: { kind: "interface", name: "cni0" },
  },
  { zone: undefined, nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [] },
);

async function repair(damaged: readonly string[]): Promise<{ plans: number; operations: string[] }> {
  const draft = new TransactionDraft();
  let plans = 0;
  const isDone = await repairShared(draft, new Set(damaged), {
    nft: new MemoryNftKernel("ip").connect(),
    planStatic: () => {
      plans += 1;
      return STATIC_PLAN;
    },
    state: new TableState(),
    yielder: testYielder,
    signal: new AbortController().signal,
  });
  assert.ok(isDone);
  return { plans, operations: Array.from(draft.operations(), operationText) };
}

test("a sync without damage does not plan the fixed rules", async () => {
  assert.deepEqual(await repair([]), { plans: 0, operations: [] });
});

test("a damaged fixed chain is planned once and written again", async () => {
  const { plans, operations } = await repair([CHAINS.services]);
  assert.equal(plans, 1);
  assert.ok(operations.length > 0);
  for (const operation of operations) assert.ok(operation.endsWith(CHAINS.services), operation);
});
