/** Follows the node addresses on which node ports and health checks answer, if `nodePortAddresses` selects some. */

import type { Clock, Timer } from "../../async/clock.ts";
import type { AddressWatch } from "../../kernel/route/address-watch.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { type NodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import type { IpAddress } from "../../net/ip.ts";

const UNKNOWN_ADDRESSES = "Failed to get local addresses: node ports stay where they are; trying again";

/** An interface that comes up causes several notifications in a row. */
const SETTLE_MS = 100;
/** Delay before a retry when the kernel cannot be watched or asked. */
const RETRY_MS = 30_000;

interface NodeAddressFollowerOptions {
  readonly addresses: NodePortAddresses;
  readonly watch: Pick<AddressWatch, "watch">;
  readonly read: LocalAddresses;
  /** The addresses already in use. */
  readonly known: "all" | readonly IpAddress[];
  /** Called with the selected addresses when any address of the node has changed; `isNew`: the selected ones have. */
  readonly onChange: (ips: readonly IpAddress[], isNew: boolean) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Runs until the signal aborts. Never rejects. Resolves at once if all addresses are selected: then nothing depends on them. */
export async function followNodeAddresses(options: NodeAddressFollowerOptions, signal: AbortSignal): Promise<void> {
  const { addresses, watch, read, onChange, clock, log } = options;
  if (addresses.matchesAll) return;
  let known = options.known === "all" ? undefined : options.known.join();
  let isDue = false;
  let failed = false;
  let retry: Timer | undefined;

  async function check(): Promise<void> {
    await clock.sleep(SETTLE_MS, signal);
    isDue = false;
    retry?.cancel();
    if (signal.aborted) return;
    try {
      const found = nodePortIPs(addresses, await read(addresses.family, signal));
      if (found.kind === "all" || signal.aborted) return;
      if (failed) log.info("The local addresses are known again", { solves: UNKNOWN_ADDRESSES });
      failed = false;
      const text = found.ips.join();
      const isNew = text !== known;
      known = text;
      if (isNew) log.info("The addresses of the node have changed", { nodePortAddresses: found.ips.join(", ") });
      onChange(found.ips, isNew);
    } catch (error) {
      if (signal.aborted) return;
      log.error(UNKNOWN_ADDRESSES, error);
      failed = true;
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
      // Changes before the watch began were not seen.
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
