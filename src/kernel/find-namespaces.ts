/** Finds network namespaces, among named namespaces and those of processes. */
import { readdirSync, readlinkSync, statSync } from "node:fs";
import { giveTurn, isTurnDue } from "../async/turns.ts";
import { attempt } from "../logging/attempt.ts";
import { ownNetnsCookie } from "./netns-cookie.ts";
import { inNetworkNamespace } from "./network-namespace.ts";

/** This process's network namespace. */
export const OWN = "/proc/self/ns/net";

/** Where `ip netns`, CNI and Docker keep named namespaces. */
const NAMED = ["/run/netns", "/run/docker/netns"];
/** The initial PID namespace, which sees all processes of the machine. */
const INITIAL_PROCESSES = "pid:[4026531836]";

/** Namespace files by cookie, without those not found. By the time it is used, a file may stand for another namespace. */
export async function findNamespaces(cookies: ReadonlySet<bigint>): Promise<ReadonlyMap<bigint, string>> {
  const found = new Map<bigint, string>();
  for await (const path of namespaces()) {
    if (found.size === cookies.size) break;
    const cookie = cookieOf(path);
    if (cookie !== undefined && cookies.has(cookie)) found.set(cookie, path);
  }
  return found;
}

/** Each namespace once, this process's own first. */
export async function* namespaces(): AsyncGenerator<string> {
  const seen = new Set<number>();
  for (const path of candidates()) {
    if (isTurnDue()) await giveTurn();
    const inode = inodeOf(path);
    if (inode === undefined || seen.has(inode)) continue;
    seen.add(inode);
    yield path;
  }
}

/** Whether this process can see any namespace but its own. */
export function seesOtherNamespaces(): boolean {
  if (attempt(() => readlinkSync("/proc/self/ns/pid")) === INITIAL_PROCESSES) return true;
  const own = inodeOf(OWN);
  for (const path of candidates()) {
    const inode = inodeOf(path);
    if (inode !== undefined && inode !== own) return true;
  }
  return false;
}

/** The cookie of the namespace behind a file; undefined if it cannot be entered. */
export function cookieOf(path: string): bigint | undefined {
  return attempt(() => inNetworkNamespace(path, ownNetnsCookie));
}

function* candidates(): Generator<string> {
  yield OWN;
  for (const folder of NAMED) for (const name of namesIn(folder)) yield `${folder}/${name}`;
  for (const name of namesIn("/proc")) if (/^\d+$/.test(name)) yield `/proc/${name}/ns/net`;
}

function namesIn(folder: string): readonly string[] {
  return attempt(() => readdirSync(folder)) ?? [];
}

/** Undefined if the process is gone or belongs to another user. */
function inodeOf(path: string): number | undefined {
  return attempt(() => statSync(path).ino);
}
