/** A relay with counters, servers and clients for the tests of relays. All end with the test. */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { until as untilTrue } from "../../../testkit/support/patience.ts";
import { silentLogger } from "../../logging/logger.ts";
import type { IpAddress } from "../../net/ip.ts";
import { NodeRelays } from "../node-relays.ts";
import type { Destination, PickDestination, Relay, RelayOptions, RelayProtocol, Relays } from "../relay.ts";

export const LOOPBACK = "127.0.0.1" as IpAddress;
export const LOOPBACK_6 = "::1" as IpAddress;

type Scope = Pick<TestContext, "after">;

/** Everything an observer was told. */
export class Sightings {
  opened = 0;
  closed = 0;
  readonly bytes = { in: 0, out: 0 };
  readonly dialFailures: string[] = [];
  readonly refusals: string[] = [];

  readonly observer = {
    opened: () => void this.opened++,
    closed: () => void this.closed++,
    bytes: (direction: "in" | "out", count: number) => {
      this.bytes[direction] += count;
    },
    dialFailed: (_destination: Destination, reason: string) => void this.dialFailures.push(reason),
    refused: (_client: Destination, reason: string) => void this.refusals.push(reason),
  };
}

export interface LabRelay {
  readonly relay: Relay;
  readonly seen: Sightings;
}

export interface LabOptions extends Partial<Omit<RelayOptions, "pick" | "observer">> {
  readonly relays?: Relays;
}

/** A relay of this protocol that is closed, with its connections cut, when the test ends. */
export async function relayTo(
  t: Scope,
  protocol: RelayProtocol,
  pick: PickDestination | Destination,
  options: LabOptions = {},
): Promise<LabRelay> {
  const { relays = new NodeRelays({ log: silentLogger, fileLimit: 64_000 }), ...rest } = options;
  const seen = new Sightings();
  const relay = await relays.listen({
    protocol,
    address: LOOPBACK,
    port: 0,
    idleTimeoutMs: 60_000,
    pick: typeof pick === "function" ? pick : () => pick,
    observer: seen.observer,
    ...rest,
  });
  t.after(() => relay.drain(0));
  return { relay, seen };
}

export interface LabServer extends Destination {
  readonly server: Server;
  readonly sockets: ReadonlySet<Socket>;
}

/** A TCP server; half-open connections are left to `serve`. */
export async function tcpServer(
  t: Scope,
  serve: (socket: Socket) => void,
  address: IpAddress = LOOPBACK,
): Promise<LabServer> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {});
    serve(socket);
  });
  server.listen({ host: address, port: 0, backlog: 4096 });
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { server, sockets, address, port: (server.address() as AddressInfo).port };
}

/** Echoes what it receives, and ends when the client does. */
export const echo = (socket: Socket): void => void socket.pipe(socket);

/** A connected client; half-open connections are left to the test. */
export async function tcpClient(t: Scope, { address, port }: Destination): Promise<Socket> {
  const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => {});
  t.after(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Everything received until the end, or the code of the error that came instead. */
export async function receiveAll(socket: Socket): Promise<{ readonly data: Buffer; readonly error?: string }> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk)).resume();
  try {
    if (socket.errored !== null) throw socket.errored;
    await once(socket, "end");
    return { data: Buffer.concat(chunks) };
  } catch (error) {
    return { data: Buffer.concat(chunks), error: codeOf(error) };
  }
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

/** One request and its answer over a connection of its own, or the code of the error that came instead. */
export async function ask(t: Scope, to: Destination, request: string): Promise<string> {
  try {
    const client = await tcpClient(t, to);
    client.end(request);
    const { data, error } = await receiveAll(client);
    return error ?? data.toString();
  } catch (error) {
    return codeOf(error);
  }
}

/** A bound UDP socket. */
export async function udpSocket(t: Scope, address: IpAddress = LOOPBACK): Promise<UdpSocket> {
  const socket = createSocket({ type: address.includes(":") ? "udp6" : "udp4", recvBufferSize: 1 << 20 });
  socket.on("error", () => {});
  socket.bind(0, address);
  await once(socket, "listening");
  let isClosed = false;
  socket.on("close", () => {
    isClosed = true;
  });
  t.after(() => {
    if (!isClosed) socket.close();
  });
  return socket;
}

/** A UDP echo server. */
export async function udpEcho(t: Scope, address: IpAddress = LOOPBACK): Promise<Destination & { socket: UdpSocket }> {
  const socket = await udpSocket(t, address);
  socket.on("message", (message, client) => socket.send(message, client.port, client.address));
  return { address, port: socket.address().port, socket };
}

/** Sends a datagram and waits for the next one to arrive. */
export async function exchange(socket: UdpSocket, to: Destination, text: string | Buffer): Promise<Buffer> {
  const answer = once(socket, "message");
  socket.send(text, to.port, to.address);
  const [message] = await answer;
  return message as Buffer;
}

/** Waits until the claim holds; its source text names what is waited for. */
export async function until(claim: () => boolean, what = claim.toString()): Promise<void> {
  await untilTrue(what, claim);
}

/** A port on which nothing listens. */
export async function closedPort(t: Scope, address: IpAddress = LOOPBACK): Promise<Destination> {
  const { server, port } = await tcpServer(t, () => {}, address);
  server.close();
  await once(server, "close");
  return { address, port };
}
