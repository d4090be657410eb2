/** Windows: the proxy's sockets listen at the Service addresses. Reference userspace.md §2. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../async/clock.ts";
import type { FamilyContext, NodeContext } from "../../contract/dataplane.ts";
import { type ExecResult, execProcess } from "../../kernel/process.ts";
import type { Logger } from "../../logging/logger.ts";
import { familyOf, type IpAddress } from "../../net/ip.ts";
import { AddressLedger } from "./address-ledger.ts";
import type { Front, FrontParts, UserspaceHost } from "./host.ts";
import { HostListeners } from "./host-listeners.ts";
import { DEFAULT_INTERFACE, hostAddressesOf, NetshAssigner, type NetshHost } from "./netsh-assigner.ts";

/** As on Linux. Windows has no limit of its own, and the senders of datagrams may be forged. */
const OPEN_SOCKETS = 64_000;

const ledgerOf = (log: Logger): AddressLedger =>
  new AddressLedger(join(process.env.ProgramData ?? "C:\\ProgramData", "kube-proxy", "service-addresses.json"), log);

async function open({ clock, log }: NodeContext) {
  const interfaceName = process.env.INTERFACE_TO_ADD_SERVICE_IP ?? DEFAULT_INTERFACE;
  const ledger = ledgerOf(log);
  log.info("Adding service addresses to an interface", { interface: interfaceName, fromEarlier: ledger.entries.size });
  return {
    async frontFor({ family, detector, log: familyLog }: FamilyContext, { sockets }: FrontParts): Promise<Front> {
      const assigner = new NetshAssigner({ family, interfaceName, host: windowsNetsh, ledger, clock, log: familyLog });
      const isOwn = (address: IpAddress) => familyOf(address) === family && !ledger.entries.has(address);
      return {
        listeners: new HostListeners({ family, sockets, assigner, detector, log: familyLog }),
        hostAddresses: async () => [...hostAddressesOf(networkInterfaces())].filter(isOwn),
        // Every sync reads them.
        async watchHostAddresses() {},
      };
    },
  };
}

/** Removes what an earlier run left. */
export async function removeAddresses(log: Logger): Promise<boolean> {
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
};

const COMMAND_LIMIT_MS = 30_000;
const SCRIPT_LIMIT_MS = 600_000;

/** Runs `netsh` from the system folder, never from the working folder. */
const run = (words: readonly string[], timeoutMs: number, signal: AbortSignal): Promise<ExecResult> =>
  execProcess(join(process.env.SystemRoot ?? "C:\\Windows", "System32", "netsh.exe"), words, { signal, timeoutMs });

export const windowsNetsh: NetshHost = {
  interfaces: networkInterfaces,
  netsh: (words, signal) => run(words, COMMAND_LIMIT_MS, signal),
  async netshScript(text, signal) {
    const folder = await mkdtemp(join(tmpdir(), "kube-proxy-"));
    try {
      const path = join(folder, "addresses.txt");
      await writeFile(path, text);
      await run(["-f", path], SCRIPT_LIMIT_MS, signal);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
  canBind: (address) =>
    new Promise((resolve) => {
      const server = createServer();
      server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code !== "EADDRNOTAVAIL"));
      server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(true)));
    }),
};
