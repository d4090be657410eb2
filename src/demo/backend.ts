/**
 * A pod's server: `backend.ts POD`. Listens where standard input tells it (messages.ts) and answers every TCP request
 * and every datagram with its pod's name and the source address that it saw. Ends with its standard input.
 */
import { createSocket } from "node:dgram";
import { createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import {
  type BackendAnswer,
  type BackendReply,
  type BackendRequest,
  type ListenSpec,
  plainAddress,
} from "./messages.ts";

const pod = process.argv[2] ?? "unnamed";
const listeners = new Map<string, { close(): void }>();

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

function open(spec: ListenSpec): Promise<{ close(): void }> {
  return new Promise((resolve, reject) => {
    if (spec.protocol === "TCP") {
      const server = createServer(serve);
      server.once("error", reject);
      server.listen({ host: "::", port: spec.port, backlog: 1024 }, () => resolve(server));
      return;
    }
    const socket = createSocket({ type: "udp6" });
    socket.once("error", reject);
    socket.on("message", (_text, from) => socket.send(answerTo(from.address), from.port, from.address, () => {}));
    socket.bind(spec.port, "::", () => resolve(socket));
  });
}

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
      listeners.set(key, await open(spec));
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
