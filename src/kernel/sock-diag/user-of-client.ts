/** Which user's process is at the other end of a connection within this network namespace. */
import type { Flow } from "../../net/flow.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { NetlinkSocket } from "../netlink/socket.ts";
import { NETLINK_SOCK_DIAG, readSocket, writeTcpQuestion } from "./sock-diag.ts";

/** A connection, by the addresses that its client has. */
type Connection = Pick<Flow, "sourceIP" | "sourcePort" | "destinationIP" | "destinationPort">;

/** @returns the function that tells the uid of a client's socket; undefined if the client is gone or the kernel does not tell. */
export function clientUsers(): (connection: Connection) => Promise<number | undefined> {
  let socket: NetlinkSocket | undefined;
  return async (connection) => {
    try {
      socket ??= NetlinkSocket.open(NETLINK_SOCK_DIAG);
      const request = new MessageBuffer(128);
      writeTcpQuestion(request, connection);
      let user: number | undefined;
      await socket.exchange(request, (reply) => {
        const found = readSocket(reply);
        // By ports alone, the kernel may find the listening socket.
        if (found !== undefined && found.state !== "LISTEN") user = found.user;
      });
      return user;
    } catch {
      return undefined;
    }
  };
}
