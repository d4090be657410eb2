/** Where this node pins its maps and links, and how it removes those of earlier processes. */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import type { KubeProxyConfig } from "../../config/config.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { type FoundFolder, findCgroupRoot, findPinFolder, USUAL_FOLDER } from "../../kernel/bpf/places.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import { NO_FOLDER } from "./config.ts";
import { OWN_PREFIX, SocketPins } from "./socket-pins.ts";

/** The part of the configuration that determines the folder. */
export interface PlaceOfPins {
  readonly ebpf: Pick<KubeProxyConfig["ebpf"], "pinFolder">;
}

/**
 * This network namespace's folder: proxies of several nodes on one machine share the file system.
 * @param cookie of the network namespace.
 * @returns undefined if pinning is disabled. @throws Error if the cookie is unknown.
 */
export function pinFolderOf({ ebpf }: PlaceOfPins, cookie: () => bigint): FoundFolder | undefined {
  if (ebpf.pinFolder === NO_FOLDER) return undefined;
  const found = findPinFolder(ebpf.pinFolder);
  return found.ok ? { ok: true, path: `${found.path}/${cookie()}` } : found;
}

/**
 * Removes what earlier processes left, in the configured folder and in the usual one. A failure in one does not stop
 * the others.
 * @param own this network namespace's folder in use: there, only families other than these are removed.
 * @throws BpfError if something is left; FolderInUse
 */
export async function endPins(
  bpf: Bpf,
  config: PlaceOfPins | undefined,
  cookie: () => bigint,
  own?: { readonly path: string; readonly families: readonly IpFamily[] },
): Promise<void> {
  const configured = config?.ebpf.pinFolder ?? "";
  const folders = new Set([USUAL_FOLDER, ...(configured === "" || configured === NO_FOLDER ? [] : [configured])]);
  const failures: unknown[] = [];
  for (const folder of folders) {
    if (!findPinFolder(folder).ok || bpf.pins.list(folder) === undefined) continue;
    const path = `${folder}/${cookie()}`;
    const there = bpf.pins.list(path);
    if (there === undefined) continue;
    const isOwn = own !== undefined && isSameFolder(path, own.path);
    const ended = IP_FAMILIES.filter((family) => there.includes(family) && !(isOwn && own.families.includes(family)));
    // There is nothing to remove, and another process may be using it.
    if (isOwn && ended.length === 0) continue;
    const lock = new FolderLock(path);
    try {
      lock.hold(() => {});
      const { udpDisconnector } = await import("../../kernel/sock-diag/disconnect-udp.ts");
      const ending = ended.map((family) => new SocketPins(bpf.pins, path, family).endWithSockets(udpDisconnector()));
      for (const outcome of await Promise.allSettled(ending)) {
        if (outcome.status === "rejected") failures.push(outcome.reason);
      }
      for (const left of [path, folder]) if (bpf.pins.list(left)?.length === 0) bpf.pins.remove(left);
    } catch (error) {
      failures.push(error);
    } finally {
      lock.release();
    }
  }
  if (failures.length > 0) throw failures[0];
}

/** A file system may be mounted in several places. */
function isSameFolder(one: string, other: string): boolean {
  if (resolve(one) === resolve(other)) return true;
  const [first, second] = [one, other].map((path) => statSync(path, { bigint: true, throwIfNoEntry: false }));
  return first !== undefined && first.ino === second?.ino && first.dev === second.dev;
}

/**
 * Detaches programs that earlier processes left at the cgroup, pinned in a folder that is no longer configured: they
 * would run before the current ones.
 * @param own folder whose links stay.
 */
export function detachStale(
  bpf: Bpf,
  { config, log }: { readonly config?: KubeProxyConfig | undefined; readonly log: Logger },
  own?: string,
): void {
  const cgroup = findCgroupRoot(config?.ebpf.cgroupRoot ?? "");
  if (!cgroup.ok) return;
  try {
    const folders = own === undefined ? [] : IP_FAMILIES.map((family) => new SocketPins(bpf.pins, own, family));
    const kept = new Set(folders.flatMap((pins) => pins.linkIds()));
    let programs = 0;
    for (const link of bpf.findLinks(cgroup.path, OWN_PREFIX)) {
      if (kept.has(link.id)) {
        link.release();
        continue;
      }
      link.close();
      programs++;
    }
    if (programs > 0) log.warn(DETACHED, { cgroup: cgroup.path, programs });
  } catch (error) {
    log.v(1, "Could not list the programs that decide at the socket", {
      cgroup: cgroup.path,
      reason: messageOf(error),
    });
  }
}

/** Logged once at start. */
const DETACHED = "Detached programs of an earlier process that decided at the socket";
