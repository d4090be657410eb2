/** Removes what kube-proxy has left in HNS: `--cleanup`. Upstream refuses it (reference windows-hcn.md §5.1). */
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { hcnErrorClass } from "../../kernel/hcn/hcn-error.ts";
import type { Logger } from "../../logging/logger.ts";
import type { IpAddress } from "../../net/ip.ts";
import { HostState } from "./host-state.ts";
import { isLeftover, isOurRemoteEndpoint, isOurSourceVip } from "./ownership.ts";

export interface CleanUpOptions {
  readonly networkName: string;
  /** Of every interface, in lower case with colons. */
  readonly hostMacs: ReadonlySet<string>;
  /** `winkernel.sourceVip`. */
  readonly sourceVip: IpAddress | undefined;
  readonly log: Logger;
}

/** Load balancers go first, then endpoints of ours that nothing names. @returns whether everything worked. */
export async function cleanUpHost(
  hcn: Hcn,
  { networkName, hostMacs, sourceVip, log }: CleanUpOptions,
): Promise<boolean> {
  // Without the network there is nothing to tell ours by, and kube-proxy has made nothing.
  if ((await hcn.named("Network", networkName)) === undefined) {
    log.info("There is no HNS network of this name, so nothing is cleaned up", { network: networkName });
    return true;
  }
  const host = await HostState.read(hcn, { family: "IPv4", networkName, rootName: undefined });
  let [succeeded, loadBalancers, endpoints] = [true, 0, 0];
  const attempt = async (what: string, work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      if (hcnErrorClass(error) === undefined) throw error;
      log.error("HNS keeps what should go", error, { what });
      succeeded = false;
      return false;
    }
  };
  for (const one of [...host.loadBalancers.all()]) {
    if (!isLeftover(one, host, [])) continue;
    const remove = () => hcn.delete("LoadBalancer", one.id);
    if (!(await attempt(`load balancer ${one.id}`, remove))) continue;
    host.loadBalancers.forget(one.id);
    loadBalancers++;
  }
  for (const endpoint of [...host.endpoints.all()]) {
    const isOurs =
      isOurRemoteEndpoint(endpoint, "IPv4", hostMacs) ||
      isOurRemoteEndpoint(endpoint, "IPv6", hostMacs) ||
      isOurSourceVip(endpoint, sourceVip, hostMacs);
    if (!isOurs || host.isNamed(endpoint.id)) continue;
    if (await attempt(`endpoint ${endpoint.id}`, () => hcn.delete("Endpoint", endpoint.id))) endpoints++;
  }
  log.info("Cleaned up HNS", { network: networkName, loadBalancers, endpoints });
  return succeeded;
}
