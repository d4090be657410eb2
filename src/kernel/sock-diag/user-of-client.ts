/** Which user's process is at the other end of a connection within this network namespace. */
import { NetlinkSocket } from "../netlink/socket.ts";
import { clientSocket } from "./destroy-tcp.ts";
import { type Connection, NETLINK_SOCK_DIAG } from "./sock-diag.ts";

/** @returns the function that tells the uid of a client's socket; undefined if the client is gone or the kernel does not tell. */
export function clientUsers(): (connection: Connection) => Promise<number | undefined> {
  let socket: NetlinkSocket | undefined;
  return async (connection) => {
    try {
      socket ??= NetlinkSocket.open(NETLINK_SOCK_DIAG);
      return (await clientSocket(socket, connection))?.user;
    } catch {
      return undefined;
    }
  };
}
