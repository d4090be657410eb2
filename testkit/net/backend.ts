/**
 * The servers of pods, all in one thread: a socket belongs to the namespace in which it was opened. Each listens where it is told
 * (messages.ts) and answers every request over TCP or SCTP and every datagram with its pod's name and the source address that it saw.
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { errnoName } from "../../src/kernel/netlink/errors.ts";
import { libc, reliableErrno } from "../../src/kernel/netlink/libc.ts";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../../src/kernel/socket-address.ts";
import { familyOf, type IpAddress, parseIpAddress, unspecifiedAddress } from "../../src/net/ip.ts";
import { serveRequests } from "./helper-side.ts";
import {
  type BackendAnswer,
  type BackendReply,
  type BackendRequest,
  type ListenSpec,
  plainAddress,
} from "./messages.ts";

const [SOCK_STREAM, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_CLOEXEC] = [1, 2, 0o4000, 0o2000000];
const [SOL_SOCKET, SO_REUSEADDR, IPPROTO_IPV6, IPV6_V6ONLY] = [1, 2, 41, 26];

interface Listener {
  close(): void;
}

interface RunningBackend {
  /** By what they listen on. */
  readonly listeners: Map<string, Listener>;
  readonly sockets: Set<Socket>;
}

/** By number. */
const backends = new Map<number, RunningBackend>();
const ANY_ADDRESSES = [unspecifiedAddress("IPv4"), unspecifiedAddress("IPv6")];

function answerTo(name: string, peer: string | undefined): string {
  const answer: BackendAnswer = { pod: name, peer: plainAddress(peer ?? "") };
  return `${JSON.stringify(answer)}\n`;
}

/** Answers anything as HTTP, so that `curl` works too. */
function serve(name: string, socket: Socket): void {
  // A client with its answer resets the connection: its way to leave no TIME_WAIT behind.
  socket.on("error", () => {});
  socket.once("data", () => {
    const body = answerTo(name, socket.remoteAddress);
    socket.end(`HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  });
}

interface Wanted {
  /** The pod that answers. */
  readonly name: string;
  readonly port: number;
  readonly address: IpAddress | undefined;
  /** Its connections. */
  readonly sockets: Set<Socket>;
  /** Runs the code that opens sockets in the backend's namespace. */
  inside<T>(work: () => T): T;
}

type Opener = (wanted: Wanted) => Promise<Listener>;

/** A bound descriptor; on "::" for both families. @throws Error with the errno's name. */
function bound(type: number, address: IpAddress, port: number): number {
  const calls = libc();
  const family = familyOf(address);
  const fd = calls.socket(ADDRESS_FAMILIES[family], type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw new Error(`no socket: ${errnoName(calls.errno())}`);
  const set = (level: number, option: number, value: number) =>
    calls.setsockopt(fd, level, option, Buffer.from(new Int32Array([value]).buffer), 4);
  if (type === SOCK_STREAM) set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (family === "IPv6") set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const to = socketAddress({ address, port });
  const bind = () => calls.bind(fd, to, to.length);
  if (bind() < 0) {
    const reason = errnoName(reliableErrno(calls, bind));
    closeSync(fd);
    throw new Error(`bind ${reason} ${address}:${port}`);
  }
  return fd;
}

/** A server on a bound descriptor. */
async function serverOn(fd: number, { name, sockets }: Wanted): Promise<Listener> {
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    serve(name, socket);
  });
  server.listen({ fd, backlog: 1024 });
  await once(server, "listening");
  return server;
}

const openTcp: Opener = (wanted) => {
  const { port, address = unspecifiedAddress("IPv6") } = wanted;
  const fd = wanted.inside(() => bound(SOCK_STREAM, address, port));
  return serverOn(fd, wanted);
};

const openUdp: Opener = async ({ name, port, address = unspecifiedAddress("IPv6"), inside }) => {
  const socket = createSocket({ type: familyOf(address) === "IPv6" ? "udp6" : "udp4" });
  socket.on("message", (_text, from) => socket.send(answerTo(name, from.address), from.port, from.address, () => {}));
  // Listens at once, because the descriptor is bound.
  socket.bind({ fd: inside(() => bound(SOCK_DGRAM, address, port)) });
  return socket;
};

const openSctp: Opener = async (wanted) => {
  const { port, address } = wanted;
  const { bindSctp } = await import("./sctp/sctp-socket.ts");
  const addresses = address === undefined ? ANY_ADDRESSES : [address];
  const servers = await Promise.all(
    addresses.map((own) => {
      const fd = wanted.inside(() => bindSctp({ address: own, port }));
      return serverOn(fd, wanted);
    }),
  );
  return { close: () => servers.forEach((server) => void server.close()) };
};

const openers = { TCP: openTcp, UDP: openUdp, SCTP: openSctp } satisfies Record<ListenSpec["protocol"], Opener>;

function keyOf({ protocol, port, address, pod: name }: ListenSpec): string {
  return [protocol, address, port, name].filter((part) => part !== undefined).join(" ");
}

/** The given address. @throws Error if it is invalid. */
function parsed(address: string | undefined): IpAddress | undefined {
  if (address === undefined) return undefined;
  const found = parseIpAddress(address);
  if (found === undefined) throw new TypeError(`no IP address: ${address}`);
  return found;
}

function backendOf(number: number): RunningBackend {
  const backend = backends.get(number) ?? { listeners: new Map(), sockets: new Set() };
  backends.set(number, backend);
  return backend;
}

async function listenOn(request: BackendRequest): Promise<string[]> {
  const { pod, namespace, listen } = request;
  const { listeners, sockets } = backendOf(request.backend);
  const keys = new Map(listen.map((spec) => [keyOf(spec), spec]));
  for (const [key, listener] of listeners) {
    if (keys.has(key)) continue;
    listener.close();
    listeners.delete(key);
  }
  const failed: string[] = [];
  for (const [key, spec] of keys) {
    if (listeners.has(key)) continue;
    const { port, pod: name = pod } = spec;
    const inside: Wanted["inside"] = (work) => inNetworkNamespace(namespace, work);
    try {
      const address = parsed(spec.address);
      listeners.set(key, await openers[spec.protocol]({ name, port, address, sockets, inside }));
    } catch (error) {
      failed.push(`${key}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return failed;
}

serveRequests(() => async (request: BackendRequest): Promise<BackendReply> => {
  const failed = await listenOn(request);
  const { listeners, sockets } = backendOf(request.backend);
  if (request.hasEnded) {
    for (const socket of sockets) socket.destroy();
    backends.delete(request.backend);
  }
  return { id: request.id, listening: listeners.size, failed };
});
