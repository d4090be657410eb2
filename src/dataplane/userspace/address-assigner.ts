/** Gives this host addresses, where the mode listens on service addresses itself. */
import type { IpAddress } from "../../net/ip.ts";

export interface AssignmentOutcome {
  /** Those that could not be had, and why. */
  readonly refused: ReadonlyMap<IpAddress, string>;
  /** Those that the host did not have before: a socket that was there does not work any more. */
  readonly added: ReadonlySet<IpAddress>;
}

export interface AddressAssigner {
  /**
   * Takes on those of the addresses that the host does not have, and gives back those that it took on before, also in an earlier
   * run, and that are not among them any more.
   */
  update(wanted: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<AssignmentOutcome>;
  /** Whether the host has all that it was given. */
  isIntact(): boolean;
}
