/** Sets conntrack's kernel parameters, once at start: reference operation.md §10.1, sync.md §13.1. */

import { existsSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { attempt } from "../../logging/attempt.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { fileSysctls, SysctlError, type Sysctls } from "../sysctl.ts";
import { openConntrack } from "./netlink-conntrack.ts";

/** Values of 0 or less leave the parameter alone. Times are in milliseconds; the kernel gets whole seconds. */
export interface ConntrackSettings {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}

/** Caps what `maxPerCore` asks for, even if `min` is greater, to protect the node's memory. */
const GREATEST_MAX = 1_048_576;

/**
 * The size of the connection table for this many CPUs.
 *
 * @returns `undefined` to leave the table's size alone.
 */
export function conntrackMax(
  settings: Pick<ConntrackSettings, "maxPerCore" | "min">,
  cpus: number,
): number | undefined {
  if (settings.maxPerCore <= 0) return undefined;
  const scaled = settings.maxPerCore * cpus;
  if (scaled > GREATEST_MAX) return GREATEST_MAX;
  return Math.max(scaled, settings.min);
}

interface ConntrackTuningDeps {
  readonly log: Logger;
  /** @default the kernel's own */
  readonly sysctls?: Sysctls;
  /** Holds `hashsize`. @default /sys/module/nf_conntrack/parameters */
  readonly moduleParameters?: Sysctls;
  /** @default from sysfs */
  readonly cpus?: number;
  /** Makes the kernel load the conntrack module. @default requests its table */
  readonly loadModule?: () => Promise<void>;
}

const ENTRY = "net/netfilter/nf_conntrack_";

/**
 * Loads the kernel module if necessary and applies each setting that differs from the kernel's value. Stops at the first
 * failure and throws an Error that begins `could not set conntrack parameters from kube-proxy configuration:`.
 */
export async function tuneConntrack(settings: ConntrackSettings, deps: ConntrackTuningDeps): Promise<void> {
  try {
    const { log, sysctls = fileSysctls(), loadModule = askForTable } = deps;
    // It is missing if nothing has used conntrack since the node booted. If loading fails, the next write reports it.
    if (await isMissing(sysctls, `${ENTRY}max`)) await loadModule().catch(() => {});
    await setMax(settings, deps, sysctls);
    const parameters: readonly (readonly [name: string, isWanted: boolean, value: number])[] = [
      ["tcp_timeout_established", settings.tcpEstablishedTimeoutMs > 0, seconds(settings.tcpEstablishedTimeoutMs)],
      ["tcp_timeout_close_wait", settings.tcpCloseWaitTimeoutMs > 0, seconds(settings.tcpCloseWaitTimeoutMs)],
      ["tcp_be_liberal", settings.tcpBeLiberal, 1],
      ["udp_timeout", settings.udpTimeoutMs > 0, seconds(settings.udpTimeoutMs)],
      ["udp_timeout_stream", settings.udpStreamTimeoutMs > 0, seconds(settings.udpStreamTimeoutMs)],
    ];
    for (const [name, isWanted, value] of parameters) {
      if (isWanted) await setIfDifferent(sysctls, log, ENTRY + name, value);
    }
  } catch (cause) {
    const detail = messageOf(cause);
    throw new Error(`could not set conntrack parameters from kube-proxy configuration: ${detail}`, { cause });
  }
}

async function isMissing(sysctls: Sysctls, entry: string): Promise<boolean> {
  try {
    await sysctls.read(entry);
    return false;
  } catch (error) {
    return error instanceof SysctlError && error.code === "missing";
  }
}

/** The first request for conntrack's table loads its module (`request_module` in the kernel's nfnetlink.c). */
async function askForTable(): Promise<void> {
  await using table = openConntrack();
  await table.readFlows("IPv4", {}, () => () => {});
}

async function setMax(settings: ConntrackSettings, deps: ConntrackTuningDeps, sysctls: Sysctls): Promise<void> {
  const max = conntrackMax(settings, deps.cpus ?? cpuCount());
  if (max === undefined || max <= 0) return;
  const entry = `${ENTRY}max`;
  // A larger table is the administrator's choice, and no reason to fail where parameters cannot be written.
  if (!((await sysctls.read(entry).catch(() => 0)) >= max)) {
    deps.log.info("Setting nf_conntrack_max", { nfConntrackMax: max });
    await setIfDifferent(sysctls, deps.log, entry, max);
  }
  const parameters = deps.moduleParameters ?? fileSysctls("/sys/module/nf_conntrack/parameters");
  const hashSize = Math.trunc(max / 4);
  if ((await parameters.read("hashsize")) >= hashSize) return;
  deps.log.info("Setting conntrack hashsize", { conntrackHashsize: hashSize });
  await parameters.write("hashsize", hashSize);
}

async function setIfDifferent(sysctls: Sysctls, log: Logger, entry: string, value: number): Promise<void> {
  // An unreadable parameter is written, so that the write reports what is wrong.
  const current = await sysctls.read(entry).catch(() => undefined);
  if (current === value) return;
  log.info("Set sysctl", { entry, value });
  await sysctls.write(entry, value);
}

function seconds(milliseconds: number): number {
  return Math.trunc(milliseconds / 1000);
}

/**
 * The number of CPUs with a topology in all NUMA nodes; without NUMA folders, of all in `cpu/`; if that is 0, of those that this process
 * may run on.
 * @param root the sysfs folder of the machine's devices.
 */
export function cpuCount(root = "/sys/devices/system"): number {
  const nodes = numbered(join(root, "node"), "node");
  const ofNodes = nodes.flatMap((node) => numbered(node, "cpu"));
  const cpus =
    nodes.length === 0
      ? numbered(join(root, "cpu"), "cpu")
      : ofNodes.filter((cpu) => existsSync(join(cpu, "topology", "core_id")));
  return cpus.length > 0 ? cpus.length : availableParallelism();
}

/** The entries `NAME0`, `NAME1`, … of a folder; none if it cannot be read. */
function numbered(folder: string, name: string): readonly string[] {
  const entries = attempt(() => readdirSync(folder)) ?? [];
  return entries.flatMap((entry) => (new RegExp(`^${name}\\d+$`).test(entry) ? [join(folder, entry)] : []));
}
