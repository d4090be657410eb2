/** The thread of socket-keeper.ts: servers and UDP sockets that stay open in its namespace. */
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { serveRequests } from "../../../testkit/net/helper-side.ts";
import type { BackendAnswer } from "../../../testkit/net/messages.ts";

export type KeeperRequest = { readonly id: number } & (
  | {
      readonly kind: "serve";
      readonly protocol: "TCP" | "UDP";
      readonly port: number;
      readonly name: string;
      /** UDP: the server connects its socket to the client before it answers. */
      readonly connects?: boolean;
    }
  | { readonly kind: "open"; readonly family: "IPv4" | "IPv6"; readonly sourcePort?: number }
  /** For a socket from `open`: it connects to that address, or sends each datagram there. */
  | {
      readonly kind: "aim";
      readonly socket: number;
      readonly address: string;
      readonly port: number;
      readonly isConnected: boolean;
    }
  | { readonly kind: "close"; readonly socket: number }
  | { readonly kind: "ask"; readonly socket: number; readonly timeoutMs: number }
);

export interface KeeperReply {
  readonly id: number;
  readonly socket: number;
  /** The pod that answered, an errno's name, or `silence`. */
  readonly text: string;
}

interface Kept {
  readonly socket: Socket;
  aim: { readonly address: string; readonly port: number } | undefined;
  /** Its error since the last request. */
  trouble: string;
}

const sockets: Kept[] = [];
const codeOf = (error: Error): string => ("code" in error ? String(error.code) : error.message);

function keptAs(socket: number): Kept {
  const kept = sockets[socket];
  if (kept === undefined) throw new TypeError(`no socket ${socket}`);
  return kept;
}

async function serve(request: Extract<KeeperRequest, { kind: "serve" }>): Promise<void> {
  const { protocol, port, name, connects = false } = request;
  const answer = (peer: string) => JSON.stringify({ pod: name, peer } satisfies BackendAnswer);
  if (protocol === "TCP") {
    const server = createServer((socket) =>
      socket.on("error", () => {}).end(`HTTP/1.0 200 OK\r\n\r\n${answer(socket.remoteAddress ?? "")}`),
    );
    await once(server.listen(port), "listening");
    return;
  }
  const socket = createSocket({ type: "udp6" });
  socket.on("message", (_, { address, port: from }) => {
    if (!connects) socket.send(answer(address), from, address);
    else {
      socket.connect(from, address, () => socket.send(answer(address), () => socket.disconnect()));
    }
  });
  await once(socket.bind(port), "listening");
}

async function aim({ socket: at, address, port, isConnected }: Extract<KeeperRequest, { kind: "aim" }>): Promise<void> {
  const kept = keptAs(at);
  kept.trouble = "";
  kept.aim = isConnected ? undefined : { address, port };
  if (!isConnected) return;
  kept.socket.connect(port, address);
  await once(kept.socket, "connect");
}

async function ask({ socket: at, timeoutMs }: Extract<KeeperRequest, { kind: "ask" }>): Promise<string> {
  const kept = keptAs(at);
  const { socket, aim: to } = kept;
  const stop = new AbortController();
  const { signal } = stop;
  try {
    return await Promise.race([
      once(socket, "message", { signal }).then(([text]) => (JSON.parse(String(text)) as BackendAnswer).pod),
      new Promise<string>((resolve) => {
        const onSent = (error: Error | null): void => void (error && resolve(codeOf(error)));
        if (to === undefined) socket.send("?", onSent);
        else socket.send("?", to.port, to.address, onSent);
      }),
      sleep(timeoutMs, "silence", { signal }),
    ]);
  } catch (error) {
    return kept.trouble || codeOf(error as Error);
  } finally {
    stop.abort();
  }
}

async function open({ family, sourcePort = 0 }: Extract<KeeperRequest, { kind: "open" }>): Promise<number> {
  const socket = createSocket(family === "IPv4" ? "udp4" : "udp6");
  const kept: Kept = { socket, aim: undefined, trouble: "" };
  socket.on("error", (error) => {
    kept.trouble = codeOf(error);
  });
  await once(socket.bind(sourcePort), "listening");
  return sockets.push(kept) - 1;
}

async function answer(request: KeeperRequest): Promise<KeeperReply> {
  const { id } = request;
  try {
    if (request.kind === "serve") await serve(request);
    if (request.kind === "aim") await aim(request);
    if (request.kind === "close") keptAs(request.socket).socket.close();
    const socket = request.kind === "open" ? await open(request) : 0;
    return { id, socket, text: request.kind === "ask" ? await ask(request) : "" };
  } catch (error) {
    return { id, socket: 0, text: codeOf(error as Error) };
  }
}

serveRequests(() => answer);
