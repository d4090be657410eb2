/**
 * A pod's server, a thread in the pod's namespace. Listens where it is told (messages.ts) and answers every request over TCP
 * or SCTP and every datagram with its pod's name and the source address that it saw.
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { parseIpAddress, unspecifiedAddress } from "../../src/net/ip.ts";
import { serveRequests } from "./helper-side.ts";
import {
  type BackendAnswer,
  type BackendReply,
  type BackendRequest,
  type ListenSpec,
  plainAddress,
} from "./messages.ts";

interface Listener {
  close(): void;
}

const listeners = new Map<string, Listener>();
const ANY_ADDRESSES = [unspecifiedAddress("IPv4"), unspecifiedAddress("IPv6")];

function answerTo(name: string, peer: string | undefined): string {
  const answer: BackendAnswer = { pod: name, peer: plainAddress(peer ?? "") };
  return `${JSON.stringify(answer)}\n`;
}

/** Answers anything as HTTP, so that `curl` works too. */
function serve(name: string, socket: Socket): void {
  // A client that got its answer resets the connection; that is its way to leave no TIME_WAIT behind.
  socket.on("error", () => {});
  socket.once("data", () => {
    const body = answerTo(name, socket.remoteAddress);
    socket.end(`HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  });
}

type Opener = (name: string, port: number, address: string | undefined) => Promise<Listener>;

const openTcp: Opener = (name, port, address = "::") =>
  new Promise((resolve, reject) => {
    const server = createServer((socket) => serve(name, socket));
    server.once("error", reject);
    server.listen({ host: address, port, backlog: 1024 }, () => resolve(server));
  });

const openUdp: Opener = (name, port, address = "::") =>
  new Promise((resolve, reject) => {
    const socket = createSocket({ type: address.includes(":") ? "udp6" : "udp4" });
    socket.once("error", reject);
    socket.on("message", (_text, from) => socket.send(answerTo(name, from.address), from.port, from.address, () => {}));
    socket.bind(port, address, () => resolve(socket));
  });

const openSctp: Opener = async (name, port, address) => {
  const { bindSctp } = await import("./sctp/sctp-socket.ts");
  const servers = await Promise.all(
    (address === undefined ? ANY_ADDRESSES : [parseIpAddress(address) ?? unspecifiedAddress("IPv4")]).map(
      async (own) => {
        const server = createServer((socket) => serve(name, socket));
        server.listen({ fd: bindSctp({ address: own, port }), backlog: 1024 });
        await once(server, "listening");
        return server;
      },
    ),
  );
  return { close: () => servers.forEach((server) => void server.close()) };
};

const openers = { TCP: openTcp, UDP: openUdp, SCTP: openSctp } satisfies Record<ListenSpec["protocol"], Opener>;

function keyOf({ protocol, port, address, pod: name }: ListenSpec): string {
  return [protocol, address, port, name].filter((part) => part !== undefined).join(" ");
}

async function listenOn(pod: string, wanted: readonly ListenSpec[]): Promise<string[]> {
  const keys = new Map(wanted.map((spec) => [keyOf(spec), spec]));
  for (const [key, listener] of listeners) {
    if (keys.has(key)) continue;
    listener.close();
    listeners.delete(key);
  }
  const failed: string[] = [];
  for (const [key, spec] of keys) {
    if (listeners.has(key)) continue;
    try {
      listeners.set(key, await openers[spec.protocol](spec.pod ?? pod, spec.port, spec.address));
    } catch (error) {
      failed.push(`${key}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return failed;
}

serveRequests((pod) => async ({ id, listen }: BackendRequest): Promise<BackendReply> => {
  const failed = await listenOn(pod, listen);
  return { id, listening: listeners.size, failed };
});
