/** Ends TCP connections of processes of this machine, in whichever network namespace they are (reference ebpf.md §1.8). */
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { Flow } from "../../net/flow.ts";
import { namespacesWith } from "../find-namespaces.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { inNetworkNamespace } from "../network-namespace.ts";
import { NETLINK_SOCK_DIAG, readTcpId, writeTcpDestroy, writeTcpQuestion } from "./sock-diag.ts";

/**
 * Ends the client's sockets of these connections: their owners get ECONNABORTED. A socket that listens, or has another peer, is left.
 *
 * @returns those whose socket was here.
 */
export async function destroyTcpClients(flows: readonly Flow[]): Promise<ReadonlySet<Flow>> {
  const ended = new Set<Flow>();
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

/** Asks about the sockets of a namespace; undefined where it cannot be entered. */
export function openIn(path: string): NetlinkSocket | undefined {
  try {
    return inNetworkNamespace(path, () => NetlinkSocket.open(NETLINK_SOCK_DIAG));
  } catch {
    // It has gone meanwhile.
    return undefined;
  }
}

/** The cookie makes sure that it is this socket: by its ports alone the kernel may find one that listens. */
async function destroyIn(socket: NetlinkSocket, flow: Flow): Promise<boolean> {
  const request = new MessageBuffer(128);
  writeTcpQuestion(request, flow);
  let id: Uint8Array | undefined;
  const [error] = await socket.exchange(request, (reply) => {
    id = readTcpId(reply, flow);
  });
  if (error !== undefined || id === undefined) return false;
  request.reset();
  writeTcpDestroy(request, flow, id);
  return (await socket.exchange(request)).length === 0;
}
