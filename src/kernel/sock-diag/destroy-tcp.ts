/** Ends TCP connections of processes on this machine, in any network namespace (reference ebpf.md §1.8). */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { attempt } from "../../logging/attempt.ts";
import type { Flow } from "../../net/flow.ts";
import { namespacesWith } from "../linked-namespaces.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { inNetworkNamespace } from "../network-namespace.ts";
import {
  type Connection,
  type DiagSocket,
  NETLINK_SOCK_DIAG,
  readSocket,
  writeDestroy,
  writeTcpQuestion,
} from "./sock-diag.ts";

/** A connection, and the cookie of its client's socket if known. */
export type ClientFlow = Flow & { readonly socket?: string };

/**
 * Closes the client's sockets of these connections: their owners get ECONNABORTED. Leaves listening sockets and those with another
 * peer or another cookie alone.
 *
 * @returns the connections whose sockets were on this machine.
 */
export async function destroyTcpClients<T extends ClientFlow>(flows: readonly T[]): Promise<ReadonlySet<T>> {
  const ended = new Set<T>();
  for (const path of await namespacesWith(new Set(flows.map(({ sourceIP }) => sourceIP)))) {
    await using socket = openIn(path);
    if (socket === undefined) continue;
    for (const flow of flows) {
      if (ended.has(flow)) continue;
      if (await destroyIn(socket, flow)) ended.add(flow);
      if (isTurnDue()) await giveTurn();
    }
  }
  return ended;
}

/** Opens a sock_diag socket in a namespace; undefined if the namespace cannot be entered. */
export function openIn(path: string): NetlinkSocket | undefined {
  return attempt(() => inNetworkNamespace(path, () => NetlinkSocket.open(NETLINK_SOCK_DIAG)));
}

/** The client's socket of a connection, in the namespace of a sock_diag socket. */
export async function clientSocket(socket: NetlinkSocket, connection: Connection): Promise<DiagSocket | undefined> {
  const request = new MessageBuffer(128);
  writeTcpQuestion(request, connection);
  let found: DiagSocket | undefined;
  const [error] = await socket.exchange(request, (reply) => {
    found = readSocket(reply);
  });
  // By ports alone, the kernel may find a listening socket.
  return error !== undefined || found?.state === "LISTEN" ? undefined : found;
}

/** Looks the socket up first and destroys it by its cookie. */
async function destroyIn(socket: NetlinkSocket, flow: ClientFlow): Promise<boolean> {
  const found = await clientSocket(socket, flow);
  if (found === undefined || !isClientOf(found, flow)) return false;
  const request = new MessageBuffer(128);
  writeDestroy(request, found, "TCP");
  return (await socket.exchange(request)).length === 0;
}

function isClientOf({ remote, remotePort, cookie }: DiagSocket, flow: ClientFlow): boolean {
  const isPeer = remote === flow.destinationIP && remotePort === flow.destinationPort;
  return isPeer && (flow.socket === undefined || flow.socket === String(cookie));
}
