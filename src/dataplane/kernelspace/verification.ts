/** Whether others have changed what HNS has, in three calls where they have not. Reference windows-practice.md §8. */
import type { HcnNetwork } from "../../kernel/hcn/documents.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";
import { type HostState, isOverlay } from "./host-state.ts";

export type Verification =
  | { readonly kind: "other-network" }
  | {
      readonly kind: "same-network";
      /** Frontends whose load balancer is gone. */
      readonly keys: ReadonlySet<string>;
      /** Whose endpoint has come or gone. */
      readonly addresses: ReadonlySet<IpAddress>;
      /** The endpoint that health checks are led to is there now, or is another one. */
      readonly hasNewRoot: boolean;
      /** On an overlay, nodes have come or gone. */
      readonly hasChangedNetwork: boolean;
    };

/** Compares the IDs of the host with those that are known, and brings `host` up to date. */
export async function verifyHost(
  hcn: Hcn,
  host: HostState,
  { networkName, rootName }: { readonly networkName: string; readonly rootName: string | undefined },
): Promise<Verification> {
  if (!(await hcn.networkIds(networkName)).includes(host.network.id)) return { kind: "other-network" };
  const addresses = await host.refreshEndpoints(hcn);
  const lost = await host.refreshLoadBalancers(hcn);
  const hasNewRoot = await host.refreshRoot(hcn, rootName);
  const keys = new Set(lost.flatMap((one) => keysOf(one, host.family)));
  const hasChangedNetwork = isOverlay(host.network) && (await isChanged(hcn, host.network));
  return { kind: "same-network", keys, addresses, hasNewRoot, hasChangedNetwork };
}

async function isChanged(hcn: Hcn, known: HcnNetwork): Promise<boolean> {
  return JSON.stringify(await hcn.network(known.id)) !== JSON.stringify(known);
}
