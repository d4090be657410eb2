/** Opens the kernel's IPVS the way upstream does: the module is loaded first (reference legacy-modes.md §2.1). */
import type { Logger } from "../../logging/logger.ts";
import { type Exec, execProcess } from "../process.ts";
import { type NetlinkIpvs, openNetlinkIpvs } from "./netlink-ipvs.ts";

/** Loading a module takes milliseconds; a stuck `modprobe` must not stop the program. */
const MODPROBE_TIMEOUT_MS = 10_000;

export interface OpenIpvsOptions {
  readonly log: Logger;
  /** @default the host's tools */
  readonly exec?: Exec;
}

/**
 * IPVS of this process's network namespace. Runs `modprobe -va ip_vs` once, and again should the module go missing; its
 * failure is only logged, since IPVS may be built into the kernel. Throws an IpvsUnavailableError when there is no IPVS.
 */
export async function openIpvs({ log, exec = execProcess }: OpenIpvsOptions): Promise<NetlinkIpvs> {
  const loadModule = (): Promise<void> => loadIpvsModule(exec, log);
  await loadModule();
  return openNetlinkIpvs({ loadModule });
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
