/** Where this node pins its maps and links, and how it removes those of earlier processes. */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { takeWide } from "../../kernel/bpf/layout.ts";
import { type FoundFolder, findPinFolder, USUAL_FOLDER } from "../../kernel/bpf/places.ts";
import { FolderLock } from "../../kernel/folder-lock.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import { NO_FOLDER } from "./config.ts";
import { VALID_UNTIL, VALIDITY } from "./socket-balancer/maps.ts";
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

/** Which programs are this process's, and what time it is by CLOCK_MONOTONIC. */
export interface Detaching {
  readonly owner: bigint;
  readonly start: bigint;
  readonly nowNs: bigint;
}

/** A process that has not reported for so long is dead: it does so every ten seconds. */
const DEAD_AFTER_NS = 25_000_000_000n;
/** The first word of an earlier version's map, which says no more than that. */
const UNTIL_BYTES = 8;

/**
 * What to do about programs by the {@link VALIDITY} of their maps: those of a dead process of this network namespace, and those that
 * decide nothing any more, are detached; those of another network namespace stay, also if nothing says whose they are.
 */
function fateOf(value: Uint8Array | undefined, { owner, start, nowNs }: Detaching): "detach" | "leave" | "ask later" {
  if (value === undefined || value.length < UNTIL_BYTES) return "leave";
  const { fields, size } = VALIDITY;
  const until = takeWide(value, fields.until);
  // 0: its process has only begun.
  const byTime = until !== 0n && nowNs > until ? "detach" : "leave";
  if (value.length !== size || takeWide(value, fields.owner) !== owner) return byTime;
  if (takeWide(value, fields.start) === start) return "leave";
  return nowNs - takeWide(value, fields.beat) > DEAD_AFTER_NS ? "detach" : "ask later";
}

/**
 * Detaches programs of earlier processes, at any cgroup and pinned in any folder: they would run before the current ones.
 * @param own folder whose links stay.
 * @returns whether some may be a dead process's, which shows only later.
 */
export function detachStale(bpf: Bpf, log: Logger, detaching: () => Detaching, own?: string): boolean {
  const left: string[] = [];
  try {
    const by = detaching();
    const folders = own === undefined ? [] : IP_FAMILIES.map((family) => new SocketPins(bpf.pins, own, family));
    const kept = new Set(folders.flatMap((pins) => pins.linkIds()));
    let programs = 0;
    for (const { link, value } of bpf.findLinks(OWN_PREFIX, VALID_UNTIL)) {
      const fate = kept.has(link.id) ? "leave" : fateOf(value, by);
      if (fate === "ask later") left.push(`${link.id}`);
      if (fate === "detach") {
        link.close();
        programs++;
      } else link.release();
    }
    if (programs > 0) log.warn(DETACHED, { programs });
  } catch (error) {
    log.v(1, "Could not list the programs that decide at the socket", { reason: messageOf(error) });
  }
  if (left.length > 0)
    log.info(PERHAPS_ALIVE, { programs: left.length, seconds: Number(DEAD_AFTER_NS / 1_000_000_000n) });
  return left.length > 0;
}

/** Logged once at start. */
const DETACHED = "Detached programs of an earlier process that decided at the socket";
const PERHAPS_ALIVE =
  "Programs at the socket belong to another process of this network namespace; they are detached unless it reports within this time";
