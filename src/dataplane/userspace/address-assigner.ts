/** Gives this host addresses, where the mode listens on service addresses itself. */
import type { IpAddress } from "../../net/ip.ts";

export interface AddressAssigner {
  /**
   * Takes on those of the addresses that the host does not have, and gives back those that it took on before and that are
   * not among them any more.
   *
   * @returns the ones that could not be had, and why.
   */
  update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<ReadonlyMap<IpAddress, string>>;
}
