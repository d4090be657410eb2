/** What leads clients to the proxy's sockets on Windows: the sockets are at the service addresses. Reference userspace.md §2. */
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";
import { familyOf, type IpAddress } from "../../net/ip.ts";
import type { FamilyContext, NodeContext } from "../dataplane.ts";
import { AddressLedger } from "./address-ledger.ts";
import type { Front, FrontParts, UserspaceHost } from "./host.ts";
import { HostListeners } from "./host-listeners.ts";
import { hostAddressesOf, NetshAssigner } from "./netsh-assigner.ts";
import { DEFAULT_INTERFACE } from "./plan-netsh.ts";
import { windowsNetsh } from "./windows-netsh.ts";

/** As on Linux. Windows has no limit of its own, and senders of datagrams may be forged. */
const OPEN_SOCKETS = 64_000;

const ledgerOf = (log: Logger): AddressLedger =>
  new AddressLedger(join(process.env.ProgramData ?? "C:\\ProgramData", "kube-proxy", "service-addresses.json"), log);

async function open({ clock, log }: NodeContext) {
  const interfaceName = process.env.INTERFACE_TO_ADD_SERVICE_IP ?? DEFAULT_INTERFACE;
  const ledger = ledgerOf(log);
  log.info("Service addresses are put on an interface", { interface: interfaceName, fromEarlier: ledger.entries.size });
  return {
    async frontFor({ family, detector, log: familyLog }: FamilyContext, { sockets }: FrontParts): Promise<Front> {
      const assigner = new NetshAssigner({ family, interfaceName, host: windowsNetsh, ledger, clock, log: familyLog });
      const isOwn = (address: IpAddress) => familyOf(address) === family && !ledger.entries.has(address);
      return {
        listeners: new HostListeners({ family, sockets, assigner, detector, log: familyLog }),
        hostAddresses: async () => [...hostAddressesOf(networkInterfaces())].filter(isOwn),
        // They are read with every sync.
        async watchHostAddresses() {},
      };
    },
  };
}

/** Gives back what is left of an earlier run. */
async function cleanUp(log: Logger): Promise<boolean> {
  const ledger = ledgerOf(log);
  if (ledger.entries.size === 0) return true;
  const facts = { interfaceName: "", host: windowsNetsh, ledger, clock: systemClock, log };
  try {
    for (const family of ["IPv4", "IPv6"] as const) {
      await new NetshAssigner({ ...facts, family }).update(new Set(), new AbortController().signal);
    }
  } catch (error) {
    log.error("Error cleaning up the userspace mode", error);
    return false;
  }
  return ledger.entries.size === 0;
}

export const windowsHost: UserspaceHost = {
  unsupported: async () => undefined,
  openFiles: () => OPEN_SOCKETS,
  open,
  cleanUp,
};
