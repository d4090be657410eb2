/** Follows the addresses of the node that node ports and health checks answer on, where `nodePortAddresses` selects some. */

import type { Clock, Timer } from "../async/clock.ts";
import type { AddressWatch } from "../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../kernel/route/addresses.ts";
import type { Logger } from "../logging/logger.ts";
import { type NodePortAddresses, nodePortIPs } from "../model/node-port-addresses.ts";
import type { IpAddress } from "../net/ip.ts";

/** An interface that comes up makes several announcements in a row. */
const SETTLE_MS = 100;
/** How soon it is tried again when the kernel cannot be watched or asked. */
const RETRY_MS = 30_000;

interface NodeAddressFollowerOptions {
  readonly addresses: NodePortAddresses;
  readonly watch: Pick<AddressWatch, "watch">;
  readonly read: LocalAddresses;
  /** The addresses that are already in use. */
  readonly known: "all" | readonly IpAddress[];
  /** Called with the selected addresses whenever any address of the node has changed; `isNew`: these have. */
  readonly onChange: (ips: readonly IpAddress[], isNew: boolean) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Runs until the signal aborts. Never rejects. Resolves at once when all addresses are selected: nothing depends on them then. */
export async function followNodeAddresses(options: NodeAddressFollowerOptions, signal: AbortSignal): Promise<void> {
  const { addresses, watch, read, onChange, clock, log } = options;
  if (addresses.matchesAll) return;
  let known = options.known === "all" ? undefined : options.known.join();
  let isDue = false;
  let retry: Timer | undefined;

  async function check(): Promise<void> {
    await clock.sleep(SETTLE_MS, signal);
    isDue = false;
    retry?.cancel();
    if (signal.aborted) return;
    try {
      const found = nodePortIPs(addresses, await read(addresses.family, signal));
      if (found.kind === "all" || signal.aborted) return;
      const text = found.ips.join();
      const isNew = text !== known;
      known = text;
      if (isNew) log.info("The addresses of the node have changed", { nodePortAddresses: found.ips.join(", ") });
      onChange(found.ips, isNew);
    } catch (error) {
      if (signal.aborted) return;
      log.error("Failed to get local addresses: node ports stay where they are; trying again", error);
      retry = clock.setTimer(RETRY_MS, look);
    }
  }

  let checks = Promise.resolve();
  const look = (): void => {
    if (isDue) return;
    isDue = true;
    checks = checks.then(check);
  };
  while (!signal.aborted) {
    try {
      // What happened before the watch began was not seen.
      look();
      await watch.watch(look, signal);
    } catch (error) {
      log.error("The addresses of the node cannot be watched; trying again", error);
      await clock.sleep(RETRY_MS, signal);
    }
  }
  await checks;
  retry?.cancel();
}
