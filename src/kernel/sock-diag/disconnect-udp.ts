/** Disconnects UDP sockets whose peer is gone, in any network namespace (reference ebpf.md §1.8). */

import { setImmediate as nextTurn } from "node:timers/promises";
import { attempt } from "../../logging/attempt.ts";
import { messageOf } from "../../logging/message-of.ts";
import type { IpAddress } from "../../net/ip.ts";
import { cookieOf, findNamespaces } from "../find-namespaces.ts";
import { AF_INET, AF_INET6 } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import { isNotFound, undefinedIf } from "../netlink/errors.ts";
import type { Reply } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { ownNetnsCookie } from "../netns-cookie.ts";
import { inNetworkNamespace } from "../network-namespace.ts";
import {
  type DiagSocket,
  NETLINK_SOCK_DIAG,
  readSocket,
  type SocketFamily,
  writeConnectedDump,
  writeDestroy,
} from "./sock-diag.ts";

/** A socket, and the peer that it must still have. */
export interface StaleSocket {
  readonly cookie: bigint;
  /** The cookie of the socket's network namespace. */
  readonly netns: bigint;
  readonly remote: IpAddress;
  readonly remotePort: number;
}

/**
 * `absent`: no socket with this cookie is connected to this peer. `unreachable`: its namespace was not found, or the kernel rejected
 * the request.
 */
export type Disconnection = "disconnected" | "absent" | "unreachable";

export interface UdpDisconnector {
  /** Why no socket can be disconnected; undefined if they can. Asks the kernel, without changing anything. */
  obstacle(): Promise<string | undefined>;
  /** @returns the outcome of each socket, in order. */
  disconnect(sockets: readonly StaleSocket[]): Promise<readonly Disconnection[]>;
}

/** After so many sockets, the event loop gets a turn. */
const PORTION = 512;

const FAMILIES: readonly SocketFamily[] = [AF_INET, AF_INET6];

/** The running kernel's {@link UdpDisconnector}. Opens nothing yet. */
export function udpDisconnector(): UdpDisconnector {
  // Where each namespace was found last, by cookie.
  const paths = new Map<bigint, string>();
  return {
    obstacle,
    async disconnect(sockets) {
      const outcomes = new Map<StaleSocket, Disconnection>();
      const groups = Map.groupBy(sockets, ({ netns }) => netns);
      await locate(paths, new Set(groups.keys()));
      for (const [netns, group] of groups) {
        const socket = openIn(netns, paths.get(netns));
        if (socket === undefined) continue;
        try {
          await disconnectIn(socket, group, outcomes);
        } catch {
          // The rest of the group counts as unreachable.
        } finally {
          await socket.close();
        }
      }
      return sockets.map((one) => outcomes.get(one) ?? "unreachable");
    },
  };
}

async function obstacle(): Promise<string | undefined> {
  try {
    await using socket = NetlinkSocket.open(NETLINK_SOCK_DIAG);
    await answersTo(socket, (request) => writeDestroy(request, { family: AF_INET })).catch(undefinedIf("ENOENT"));
    return undefined;
  } catch (error) {
    return `sockets cannot be disconnected: ${messageOf(error)}`;
  }
}

/** Updates the paths of these namespaces: keeps those that are still right, and searches for the others. */
async function locate(paths: Map<bigint, string>, cookies: ReadonlySet<bigint>): Promise<void> {
  const own = ownNetnsCookie();
  const missing = new Set<bigint>();
  for (const cookie of cookies) {
    const path = paths.get(cookie);
    if (cookie === own || (path !== undefined && cookieOf(path) === cookie)) continue;
    paths.delete(cookie);
    missing.add(cookie);
  }
  if (missing.size === 0) return;
  for (const [cookie, path] of await findNamespaces(missing)) paths.set(cookie, path);
}

function openIn(netns: bigint, path: string | undefined): NetlinkSocket | undefined {
  if (netns === ownNetnsCookie()) return NetlinkSocket.open(NETLINK_SOCK_DIAG);
  if (path === undefined) return undefined;
  const open = () => (ownNetnsCookie() === netns ? NetlinkSocket.open(NETLINK_SOCK_DIAG) : undefined);
  return attempt(() => inNetworkNamespace(path, open));
}

async function disconnectIn(
  socket: NetlinkSocket,
  stale: readonly StaleSocket[],
  outcomes: Map<StaleSocket, Disconnection>,
): Promise<void> {
  const byCookie = new Map(stale.map((one) => [one.cookie, one]));
  const connected = new Map<StaleSocket, DiagSocket>();
  const note = (reply: Reply): undefined => {
    const found = readSocket(reply);
    const one = found && byCookie.get(found.cookie);
    if (one !== undefined && found?.remote === one.remote && found.remotePort === one.remotePort)
      connected.set(one, found);
  };
  for (const family of FAMILIES) await answersTo(socket, (request) => writeConnectedDump(request, family), note);
  for (const one of stale) if (!connected.has(one)) outcomes.set(one, "absent");
  const found = [...connected];
  for (let start = 0; start < found.length; start += PORTION) {
    const portion = found.slice(start, start + PORTION);
    const request = new MessageBuffer(128 * portion.length);
    for (const [, one] of portion) writeDestroy(request, one);
    const errors = await socket.exchange(request);
    for (const [one] of portion) outcomes.set(one, "disconnected");
    for (const error of errors) {
      const [one] = portion[error.facts.request?.index ?? -1] ?? [];
      // ENOENT: the socket was closed meanwhile, or connected to something else.
      if (one !== undefined) outcomes.set(one, isNotFound(error) ? "absent" : "unreachable");
    }
    await nextTurn();
  }
}
