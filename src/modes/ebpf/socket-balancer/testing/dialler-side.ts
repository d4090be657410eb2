/** The other side of `dialler.ts`: runs in the process that connects. */
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { ownNetnsCookie } from "../../../../kernel/netns-cookie.ts";
import { dialFastOpen, dialInSuccession, dialMultipath, sendBesides } from "./raw-sockets.ts";

export type Request =
  | { readonly what: "listen"; readonly protocol: "tcp" | "udp"; readonly address: string }
  | { readonly what: "bind"; readonly protocol: "tcp" | "udp"; readonly address: string; readonly port: number }
  | { readonly what: "netns cookie" }
  | {
      readonly what: "dial in turn";
      readonly address: string;
      readonly ports: readonly number[];
      readonly count: number;
    }
  /** Keeps a UDP socket under a name; reconnects an existing one. */
  | {
      readonly what: "hold";
      readonly name: string;
      readonly address: string;
      readonly port: number;
      /** Whether it connects again by itself as soon as it is disconnected. */
      readonly isResolver?: boolean | undefined;
    }
  | { readonly what: "ask"; readonly name: string }
  | { readonly what: "drop"; readonly name: string }
  | { readonly what: "send besides"; readonly args: Parameters<typeof sendBesides> }
  | { readonly what: "dial in succession"; readonly args: Parameters<typeof dialInSuccession> }
  | {
      readonly what: "dial";
      readonly protocol: DialledProtocol;
      readonly address: string;
      readonly port: number;
      /** For TCP: the address to bind the socket to first. */
      readonly from?: string | undefined;
    };

/** `udp` connects its socket, `datagram` does not. The last two are IPv4 only. */
export type DialledProtocol = "tcp" | "udp" | "datagram" | "multipath" | "fast open";

export interface DialReport {
  /** The port that the peer listens on, according to the peer. */
  readonly reached?: number;
  /** For TCP, the peer's address as the socket reports it; for a datagram, the answer's source address. */
  readonly peer?: string;
  /** Why the connection failed. */
  readonly code?: string;
}

/** How long to wait for an answer that may not come. */
const DATAGRAM_WAIT_MS = 2000;

async function listen(protocol: "tcp" | "udp", address: string): Promise<number> {
  if (protocol === "tcp") {
    const server = createServer((socket) => {
      // The client may already be gone.
      socket.on("error", () => {}).end(`${(server.address() as AddressInfo).port}`);
    });
    server.listen(0, address);
    await once(server, "listening");
    return (server.address() as AddressInfo).port;
  }
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  socket.on("message", (_, { port, address: client }) => socket.send(`${socket.address().port}`, port, client));
  socket.bind(0, address);
  await once(socket, "listening");
  return socket.address().port;
}

/** Binds a socket and closes it. @returns why it failed, if it did. */
async function bind(protocol: "tcp" | "udp", address: string, port: number): Promise<DialReport> {
  const socket = protocol === "tcp" ? createServer() : createSocket(address.includes(":") ? "udp6" : "udp4");
  try {
    if (socket instanceof Server) await once(socket.listen(port, address), "listening");
    else await once(socket.bind(port, address), "listening");
    socket.close();
    return {};
  } catch (error) {
    return { code: codeOf(error) };
  }
}

function dialTcp(address: string, port: number, from?: string): Promise<DialReport> {
  return new Promise((resolve) => {
    let text = "";
    let peer = "";
    const socket = connect(
      { host: address, port, ...(from !== undefined && { localAddress: from }) },
      () => (peer = `${socket.remoteAddress} ${socket.remotePort}`),
    );
    socket.on("data", (chunk) => (text += String(chunk)));
    socket.on("end", () => resolve({ reached: Number(text), peer }));
    socket.on("error", (error) => resolve({ code: "code" in error ? String(error.code) : error.message }));
  });
}

async function dialUdp(address: string, port: number): Promise<DialReport> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  try {
    return await new Promise((resolve) => {
      const failed = (error: Error): void => resolve({ code: "code" in error ? String(error.code) : error.message });
      socket.on("error", failed);
      socket.on("message", (text) => resolve({ reached: Number(text) }));
      socket.connect(port, address, (error?: Error) => {
        if (error !== undefined && error !== null) failed(error);
        else socket.send("?", (problem) => problem !== null && failed(problem));
      });
      setTimeout(() => resolve({ code: "silence" }), DATAGRAM_WAIT_MS).unref();
    });
  } finally {
    socket.close();
  }
}

async function sendDatagram(address: string, port: number): Promise<DialReport> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  try {
    return await new Promise((resolve) => {
      const failed = (error: Error): void => resolve({ code: "code" in error ? String(error.code) : error.message });
      socket.on("error", failed);
      socket.on("message", (text, from) => resolve({ reached: Number(text), peer: `${from.address} ${from.port}` }));
      socket.send("?", port, address, (problem) => problem !== null && failed(problem));
      setTimeout(() => resolve({ code: "silence" }), DATAGRAM_WAIT_MS).unref();
    });
  } finally {
    socket.close();
  }
}

/** Connects over TCP, one connection at a time. @returns for each port, how often each outcome occurred. */
async function dialInTurn(
  address: string,
  ports: readonly number[],
  count: number,
): Promise<Record<number, Record<string, number>>> {
  const outcomes: Record<number, Record<string, number>> = {};
  for (let attempt = 0; attempt < count; attempt++) {
    const port = ports[attempt % ports.length] ?? 0;
    const { reached, code } = await dialTcp(address, port);
    const met = outcomes[port] ?? {};
    outcomes[port] = met;
    const outcome = `${reached ?? code}`;
    met[outcome] = (met[outcome] ?? 0) + 1;
  }
  return outcomes;
}

const held = new Map<string, Socket>();
/** Errors of held sockets with no request in progress. */
const failures = new Map<string, Error>();

async function hold(name: string, address: string, port: number, isResolver: boolean): Promise<DialReport> {
  const before = held.get(name);
  const socket = before ?? createSocket(address.includes(":") ? "udp6" : "udp4");
  if (before !== undefined) socket.disconnect();
  else if (!isResolver) socket.on("error", (error) => void failures.set(name, error));
  else socket.on("error", () => void hold(name, address, port, isResolver));
  failures.delete(name);
  held.set(name, socket);
  return await new Promise((resolve) => {
    socket.connect(port, address, (error?: Error | null) => resolve(error ? { code: codeOf(error) } : {}));
  });
}

/** Sends and waits for the answer, or reports an earlier error of the socket. */
async function ask(name: string): Promise<DialReport> {
  const socket = held.get(name);
  if (socket === undefined) return { code: "no such socket" };
  const stop = new AbortController();
  const failed = failures.get(name);
  if (failed !== undefined) return { code: codeOf(failed) };
  try {
    return await Promise.race([
      once(socket, "message", { signal: stop.signal }).then(([text]) => ({ reached: Number(text) })),
      new Promise<DialReport>((resolve) => socket.send("?", (error) => error && resolve({ code: codeOf(error) }))),
      sleep(DATAGRAM_WAIT_MS, { code: "silence" }, { signal: stop.signal }),
    ]);
  } catch (error) {
    return { code: codeOf(error) };
  } finally {
    stop.abort();
  }
}

const codeOf = (error: unknown): string =>
  error instanceof Error && "code" in error ? String(error.code) : String(error);

const DIALS = {
  tcp: dialTcp,
  udp: dialUdp,
  datagram: sendDatagram,
  multipath: dialMultipath,
  "fast open": dialFastOpen,
} as const;

process.on("message", async (request: Request) => {
  if (request.what === "listen") process.send?.(await listen(request.protocol, request.address));
  else if (request.what === "bind") process.send?.(await bind(request.protocol, request.address, request.port));
  else if (request.what === "netns cookie") process.send?.(`${ownNetnsCookie()}`);
  else if (request.what === "dial in turn")
    process.send?.(await dialInTurn(request.address, request.ports, request.count));
  else if (request.what === "hold") {
    const { name, address, port, isResolver = false } = request;
    process.send?.(await hold(name, address, port, isResolver));
  } else if (request.what === "ask") process.send?.(await ask(request.name));
  else if (request.what === "send besides") process.send?.(await sendBesides(...request.args));
  else if (request.what === "dial in succession") process.send?.(dialInSuccession(...request.args));
  else if (request.what === "drop") {
    held.get(request.name)?.close();
    held.delete(request.name);
    process.send?.({});
  } else process.send?.(await DIALS[request.protocol](request.address, request.port, request.from));
});
process.on("disconnect", () => process.exit());
process.send?.("ready");
