/** Whether the kernel's IPVS can be used with a scheduler: reference ipvs.md §1. */
import type { Ipvs, VirtualServer } from "../../kernel/ipvs/ipvs.ts";
import type { IpAddress } from "../../net/ip.ts";

/** An address of TEST-NET-2 (RFC 5737) that no host has, with upstream's port. */
const PROBE_ADDRESS = "198.51.100.0" as IpAddress; // canonical
const PROBE_PORT = 20_000;

/**
 * Adds a virtual server with the scheduler, which makes the kernel load the scheduler's module, and deletes it again;
 * neither, when some virtual server has the scheduler already. Throws an Error that says what is missing.
 */
export async function probeScheduler(ipvs: Ipvs, scheduler: string): Promise<void> {
  for (const family of ["IPv4", "IPv6"] as const) {
    if ((await ipvs.virtualServers(family)).some((server) => server.scheduler === scheduler)) return;
  }
  const virtualServer: VirtualServer = {
    address: PROBE_ADDRESS,
    protocol: "TCP",
    port: PROBE_PORT,
    scheduler,
    flags: 0,
    timeoutSeconds: 0,
  };
  const [refused] = await ipvs.apply([{ kind: "add-virtual-server", virtualServer }]);
  // Left behind by a run that was killed: what it had is replaced.
  const isLeftOver = refused?.code === "EEXIST";
  const [failure] = isLeftOver
    ? await ipvs.apply([{ kind: "update-virtual-server", virtualServer }])
    : refused === undefined
      ? []
      : [refused];
  if (failure === undefined || isLeftOver) await ipvs.apply([{ kind: "delete-virtual-server", virtualServer }]);
  if (failure !== undefined) throw new Error(failure.message);
}
