/** Whether others have changed what HNS has, in three calls where they have not. Reference windows-practice.md §8. */
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { IpAddress } from "../../net/ip.ts";
import { keysOf } from "./frontend-keys.ts";
import type { HostState } from "./host-state.ts";

export type Verification =
  | { readonly kind: "other-network" }
  | {
      readonly kind: "same-network";
      /** Frontends whose load balancer is gone. */
      readonly keys: ReadonlySet<string>;
      /** Whose endpoint has come or gone. */
      readonly addresses: ReadonlySet<IpAddress>;
    };

/** Compares the IDs of the host with those that are known, and brings `host` up to date. */
export async function verifyHost(hcn: Hcn, host: HostState, networkName: string): Promise<Verification> {
  if (!(await hcn.networkIds(networkName)).includes(host.network.id)) return { kind: "other-network" };
  const addresses = await host.refreshEndpoints(hcn);
  const lost = await host.refreshLoadBalancers(hcn);
  return { kind: "same-network", keys: new Set(lost.flatMap((one) => keysOf(one, host.family))), addresses };
}
