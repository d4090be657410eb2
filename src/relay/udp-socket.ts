/** UDP sockets as the relay wants them: addresses are never looked up, and what cannot be sent is no exception. */
import { createSocket, type Socket, type SocketOptions } from "node:dgram";
import { familyOf, type IpAddress, type IpFamily } from "../net/ip.ts";

/** What the kernel may keep for us while the process is busy; it has a limit of its own (net.core.rmem_max). */
const RECEIVE_BUFFER_BYTES = 1 << 20;

/** What may wait for the kernel to have room; a datagram beyond that is dropped, as the network would. */
const SEND_QUEUE_LIMIT_BYTES = 1 << 20;

/** Everything that comes here is an address. Answering at once spares every datagram a turn. */
function lookupFor(family: IpFamily): NonNullable<SocketOptions["lookup"]> {
  const number = family === "IPv6" ? 6 : 4;
  return (address, _options, callback) => callback(null, address, number);
}

const OPTIONS: Readonly<Record<IpFamily, SocketOptions>> = {
  IPv4: { type: "udp4", lookup: lookupFor("IPv4"), recvBufferSize: RECEIVE_BUFFER_BYTES },
  IPv6: { type: "udp6", ipv6Only: true, lookup: lookupFor("IPv6"), recvBufferSize: RECEIVE_BUFFER_BYTES },
};

/** A socket of the address's family, not bound yet. */
export function udpSocketFor(address: IpAddress): Socket {
  return createSocket(OPTIONS[familyOf(address)]);
}

/** Whether so much waits to be sent that another datagram had better be dropped. */
export function isCongested(socket: Socket): boolean {
  return socket.getSendQueueSize() > SEND_QUEUE_LIMIT_BYTES;
}
