/** Opens the kernel's IPVS, and loads its module with upstream's command (reference ipvs.md §1). */

import { type Exec, execProcess } from "../../../kernel/process.ts";
import type { Logger } from "../../../logging/logger.ts";
import { type NetlinkIpvs, openNetlinkIpvs } from "./netlink-ipvs.ts";

/** Loading a module takes milliseconds; a stuck `modprobe` must not block the program. */
const MODPROBE_TIMEOUT_MS = 10_000;

interface OpenIpvsOptions {
  readonly log: Logger;
  /** @default the host's tools */
  readonly exec?: Exec;
}

/**
 * Opens IPVS of this process's network namespace. Runs `modprobe -va ip_vs` if the kernel has no IPVS, now or later. A failure
 * of modprobe is only logged; if IPVS is still missing afterwards, throws an IpvsUnavailableError.
 */
export function openIpvs({ log, exec = execProcess }: OpenIpvsOptions): Promise<NetlinkIpvs> {
  return openNetlinkIpvs({ loadModule: () => loadIpvsModule(exec, log) });
}

async function loadIpvsModule(exec: Exec, log: Logger): Promise<void> {
  const args = ["-va", "ip_vs"];
  try {
    const { status, stdout, stderr } = await exec("modprobe", args, { timeoutMs: MODPROBE_TIMEOUT_MS });
    if (status !== 0)
      log.warn("Failed to load the kernel module ip_vs", { status, output: `${stdout}${stderr}`.trim() });
  } catch (error) {
    log.error("Failed to run modprobe for the kernel module ip_vs", error, {});
  }
}
