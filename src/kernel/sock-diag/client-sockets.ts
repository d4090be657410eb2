/** Clients' sockets in all network namespaces of this machine that this process can see. */
import { networkInterfaces } from "node:os";
import { attempt } from "../../logging/attempt.ts";
import { familyOf, type IpAddress, type IpFamily, isUnspecified, joinHostPort, parseIpAddress } from "../../net/ip.ts";
import { namespaces } from "../find-namespaces.ts";
import { whyNoneIsEntered } from "../linked-namespaces.ts";
import { AF_INET, AF_INET6 } from "../netlink/constants.ts";
import { answersTo } from "../netlink/dump-retry.ts";
import type { MessageBuffer } from "../netlink/message-buffer.ts";
import { inNetworkNamespace } from "../network-namespace.ts";
import { openIn } from "./destroy-tcp.ts";
import {
  type DiagSocket,
  readSocket,
  readTcpInfo,
  type SocketFamily,
  type TcpInfo,
  writeClientDump,
} from "./sock-diag.ts";

/** A socket with what the caller knows about it; TCP sockets also with statistics. */
export interface KnownSocket<T> extends Omit<DiagSocket, "id">, Partial<TcpInfo> {
  readonly known: T;
}

/**
 * Finds the sockets that `knownOf` knows. An unbound socket gets the address from which it most likely sends.
 * @param knownOf must be cheap: it is called for each socket.
 */
export async function* clientSockets<T>(
  protocol: "TCP" | "UDP",
  family: IpFamily,
  knownOf: (socket: DiagSocket) => T | undefined,
): AsyncGenerator<KnownSocket<T>> {
  for await (const path of namespaces()) {
    await using socket = openIn(path);
    if (socket === undefined) continue;
    // IPv6 sockets can have IPv4 peers.
    const kinds: readonly SocketFamily[] = family === "IPv4" ? [AF_INET, AF_INET6] : [AF_INET6];
    for (const kind of kinds) {
      const dump = (request: MessageBuffer): void => writeClientDump(request, kind, protocol);
      const found = await answersTo(socket, dump, (reply): KnownSocket<T> | undefined => {
        const one = readSocket(reply);
        const known = one && knownOf(one);
        return one === undefined || known === undefined ? undefined : { ...one, ...readTcpInfo(reply), known };
      });
      for (const one of found) {
        yield isUnspecified(one.local) ? { ...one, local: sourceIn(path, family) ?? one.local } : one;
      }
    }
  }
}

/** What UDP sockets are connected to. */
export interface UdpPeers {
  /** By cookie, such as `10.0.0.1:53`. Has each socket with a port, so none that was disconnected from an endpoint. */
  readonly peers: ReadonlyMap<bigint, string>;
  /** Whether other network namespaces can be seen. */
  readonly isOfAll: boolean;
}

export async function udpPeers(family: IpFamily): Promise<UdpPeers> {
  const peers = new Map<bigint, string>();
  const note = ({ cookie, remote, remotePort }: DiagSocket) => void peers.set(cookie, joinHostPort(remote, remotePort));
  for await (const _ of clientSockets("UDP", family, note));
  return { peers, isOfAll: whyNoneIsEntered() === undefined };
}

function sourceIn(path: string, family: IpFamily): IpAddress | undefined {
  const interfaces = attempt(() => inNetworkNamespace(path, networkInterfaces)) ?? {};
  return Object.values(interfaces)
    .flatMap((list) => list ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith("fe80:"))
    .map(({ address }) => parseIpAddress(address))
    .find((address) => address !== undefined && familyOf(address) === family);
}
