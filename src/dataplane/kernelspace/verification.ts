/** Whether others have changed what HNS has, in three calls where they have not. Reference windows-practice.md §8. */
import type { HcnNetwork } from "../../kernel/hcn/documents.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { type HostState, isOverlay } from "./host-state.ts";
import type { Overview } from "./overview.ts";

interface VerificationOptions {
  readonly networkName: string;
  readonly rootName: string | undefined;
  /** Also looks what load balancers do, which is one call more. */
  readonly overview: Overview | undefined;
  /** Ends it between two calls. */
  readonly signal: AbortSignal;
}

/**
 * - `other-network`: the host's network is not the one that is known.
 * - `changed-network`: on an overlay, nodes have come or gone.
 */
export type Verification = "other-network" | "changed-network" | "same-network";

/** Compares the IDs of the host with those that are known, and brings `host` up to date; what it finds is in its news. */
export async function verifyHost(
  hcn: Hcn,
  host: HostState,
  { networkName, rootName, overview, signal }: VerificationOptions,
): Promise<Verification> {
  if (!(await hcn.networkIds(networkName)).includes(host.network.id)) return "other-network";
  await host.refreshEndpoints(hcn, signal);
  await host.refreshLoadBalancers(hcn, signal);
  await host.refreshRoot(hcn, rootName);
  const hasChanged = isOverlay(host.network) && (await isChanged(hcn, host.network));
  if (overview !== undefined) await host.refreshBehaviour(hcn, overview);
  return hasChanged ? "changed-network" : "same-network";
}

async function isChanged(hcn: Hcn, known: HcnNetwork): Promise<boolean> {
  return JSON.stringify(await hcn.network(known.id)) !== JSON.stringify(known);
}
