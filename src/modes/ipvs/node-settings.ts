/** Kernel parameters and timeouts that the ipvs mode sets: reference operation.md §10.2, ipvs.md §1. */

import { isAtLeast, type KernelVersion } from "../../kernel/kernel-version.ts";
import type { Sysctls } from "../../kernel/sysctl.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { Ipvs, IpvsTimeouts, VirtualServer } from "./kernel/ipvs.ts";

const CONN_REUSE_MODE = "net/ipv4/vs/conn_reuse_mode";
/** The first kernel with the parameter, and the first one whose default is right. */
const CONN_REUSE_KERNELS = { first: { major: 4, minor: 1 }, fixed: { major: 5, minor: 9 } } as const;

interface NodeSettings {
  readonly strictARP: boolean;
  /** Undefined if unknown. */
  readonly kernelVersion: KernelVersion | undefined;
}

type WantedSysctl = readonly [name: string, value: number];

/** Writes what differs. The parameters of IPVS exist once its module is loaded. Throws an Error that names the parameter. */
export async function setSysctls(sysctls: Sysctls, settings: NodeSettings, log: Logger): Promise<void> {
  await setIpvsSysctls(sysctls, settings, log);
  const { strictARP } = settings;
  await write(sysctls, [["net/ipv4/ip_forward", 1], ...(strictARP ? STRICT_ARP : [])], log);
}

const STRICT_ARP: readonly WantedSysctl[] = [
  ["net/ipv4/conf/all/arp_ignore", 1],
  ["net/ipv4/conf/all/arp_announce", 2],
];

/** The parameters that are lost when the module is unloaded. */
export async function setIpvsSysctls(
  sysctls: Sysctls,
  { kernelVersion }: Pick<NodeSettings, "kernelVersion">,
  log: Logger,
): Promise<void> {
  const wanted: WantedSysctl[] = [["net/ipv4/vs/conntrack", 1]];
  if (kernelVersion !== undefined && !isAtLeast(kernelVersion, CONN_REUSE_KERNELS.first)) {
    const found = `${kernelVersion.major}.${kernelVersion.minor}`;
    log.error(`Can't set sysctl ${CONN_REUSE_MODE}`, new Error(`it needs kernel 4.1 or later, this is ${found}`));
  } else if (kernelVersion !== undefined && !isAtLeast(kernelVersion, CONN_REUSE_KERNELS.fixed)) {
    wanted.push([CONN_REUSE_MODE, 0]);
  }
  wanted.push(["net/ipv4/vs/expire_nodest_conn", 1], ["net/ipv4/vs/expire_quiescent_template", 1]);
  await write(sysctls, wanted, log);
}

async function write(sysctls: Sysctls, wanted: readonly WantedSysctl[], log: Logger): Promise<void> {
  for (const [name, value] of wanted) {
    try {
      const before = await sysctls.read(name);
      if (before === value) continue;
      await sysctls.write(name, value);
      log.v(1, "Changed sysctl", { name, before, after: value });
    } catch (error) {
      const reason = messageOf(error);
      throw new Error(`can't set sysctl ${name} to ${value}: ${reason}`, { cause: error });
    }
  }
}

/** Sets the given timeouts if they differ; 0 keeps the kernel's value. Only logs failures. */
export async function setTimeouts(ipvs: Ipvs, wanted: IpvsTimeouts, log: Logger): Promise<void> {
  try {
    const present = await ipvs.timeouts();
    const differs = (["tcp", "tcpFin", "udp"] as const).some((key) => wanted[key] > 0 && wanted[key] !== present[key]);
    if (differs) await ipvs.setTimeouts(wanted);
  } catch (error) {
    log.error("Failed to configure the timeouts of IPVS", error, { ...wanted });
  }
}

/** An address of TEST-NET-2 (RFC 5737), which no host has, with upstream's port. */
const PROBE_ADDRESS = "198.51.100.0" as IpAddress; // canonical
const PROBE_PORT = 20_000;

/**
 * Adds a virtual server with the scheduler, so that the kernel loads the scheduler's module, and deletes it again; does
 * neither if a virtual server with the scheduler exists. Throws an Error that says what is missing.
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
  // A killed run left it behind: replace it.
  const isLeftOver = refused?.code === "EEXIST";
  const [failure] = isLeftOver
    ? await ipvs.apply([{ kind: "update-virtual-server", virtualServer }])
    : refused === undefined
      ? []
      : [refused];
  if (failure === undefined || isLeftOver) await ipvs.apply([{ kind: "delete-virtual-server", virtualServer }]);
  if (failure !== undefined) throw new Error(failure.message);
}
