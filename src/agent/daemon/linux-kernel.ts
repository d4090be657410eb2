/** {@link NodeKernel} of Linux. */
import { openConntrack } from "../../kernel/conntrack/netlink-conntrack.ts";
import { tuneConntrack } from "../../kernel/conntrack/tuning.ts";
import { raiseSoftFileLimit } from "../../kernel/file-limit.ts";
import { AddressWatch } from "../../kernel/route/address-watch.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import type { NodeKernel } from "./node-kernel.ts";

export function linuxKernel(): NodeKernel {
  return {
    addressWatch: new AddressWatch(),
    localAddresses,
    openConntrack: () => openConntrack(),
    endTcpClients: async (flows) => (await import("../../kernel/sock-diag/destroy-tcp.ts")).destroyTcpClients(flows),
    tuneConntrack: (settings, log) => tuneConntrack(settings, { log }),
    raiseFileLimit: () => raiseSoftFileLimit(),
  };
}
