/**
 * A pod's server: `backend.ts POD`. Listens where standard input tells it (messages.ts) and answers every request over TCP
 * or SCTP and every datagram with its pod's name and the source address that it saw. Ends with its standard input.
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { bindSctp } from "../kernel/sctp/sctp-socket.ts";
import { unspecifiedAddress } from "../net/ip.ts";
import {
  type BackendAnswer,
  type BackendReply,
  type BackendRequest,
  type ListenSpec,
  plainAddress,
} from "./messages.ts";

const pod = process.argv[2] ?? "unnamed";

interface Listener {
  close(): void;
}

const listeners = new Map<string, Listener>();
const ANY_ADDRESSES = [unspecifiedAddress("IPv4"), unspecifiedAddress("IPv6")];

function answerTo(peer: string | undefined): string {
  const answer: BackendAnswer = { pod, peer: plainAddress(peer ?? "") };
  return `${JSON.stringify(answer)}\n`;
}

/** Answers as HTTP whatever is asked, so that `curl` works too. */
function serve(socket: Socket): void {
  // A client that got its answer resets the connection; that is its way to leave no TIME_WAIT behind.
  socket.on("error", () => {});
  socket.once("data", () => {
    const body = answerTo(socket.remoteAddress);
    socket.end(`HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  });
}

function openTcp(port: number): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const server = createServer(serve);
    server.once("error", reject);
    server.listen({ host: "::", port, backlog: 1024 }, () => resolve(server));
  });
}

function openUdp(port: number): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const socket = createSocket({ type: "udp6" });
    socket.once("error", reject);
    socket.on("message", (_text, from) => socket.send(answerTo(from.address), from.port, from.address, () => {}));
    socket.bind(port, "::", () => resolve(socket));
  });
}

async function openSctp(port: number): Promise<Listener> {
  const servers = await Promise.all(
    ANY_ADDRESSES.map(async (address) => {
      const server = createServer(serve);
      server.listen({ fd: bindSctp({ address, port }), backlog: 1024 });
      await once(server, "listening");
      return server;
    }),
  );
  return { close: () => servers.forEach((server) => void server.close()) };
}

const openers = { TCP: openTcp, UDP: openUdp, SCTP: openSctp } satisfies Record<ListenSpec["protocol"], unknown>;

async function listenOn(wanted: readonly ListenSpec[]): Promise<string[]> {
  const keys = new Map(wanted.map((spec) => [`${spec.protocol} ${spec.port}`, spec]));
  for (const [key, listener] of listeners) {
    if (keys.has(key)) continue;
    listener.close();
    listeners.delete(key);
  }
  const failed: string[] = [];
  for (const [key, spec] of keys) {
    if (listeners.has(key)) continue;
    try {
      listeners.set(key, await openers[spec.protocol](spec.port));
    } catch (error) {
      failed.push(`${key}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return failed;
}

// The terminal's Ctrl-C reaches the whole process group; the demo decides when its helpers end.
process.on("SIGINT", () => {});

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as BackendRequest;
  const failed = await listenOn(request.listen);
  const reply: BackendReply = { id: request.id, listening: listeners.size, failed };
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
process.exit(0);
