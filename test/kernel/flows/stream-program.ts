/** The thread of byte-stream.ts: one end of a connection in which bytes flow for as long as they can. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { serveRequests } from "../../../testkit/net/helper-side.ts";

export type StreamRequest =
  /** Sends to every client of the port; answered when it listens. */
  | { readonly id: number; readonly kind: "source"; readonly port: number }
  /** Connects and reads; answered when it is connected, or has failed. */
  | { readonly id: number; readonly kind: "sink"; readonly address: string; readonly port: number }
  /** Answered when more bytes have come, or no more can. */
  | { readonly id: number; readonly kind: "flows" }
  /** Answered when the connection is over. */
  | { readonly id: number; readonly kind: "ended" };

export interface StreamReply {
  readonly id: number;
  readonly bytes: number;
}

const CHUNK = Buffer.alloc(16 * 1024, "x");
const PERIOD_MS = 10;

let sink: Socket | undefined;
/** Resolves when the sink's connection is over. */
const over = Promise.withResolvers<void>();

async function listen(port: number): Promise<void> {
  const server = createServer((socket) => {
    const timer = setInterval(() => socket.write(CHUNK), PERIOD_MS);
    socket.on("error", () => {});
    socket.on("close", () => clearInterval(timer));
  });
  await once(server.listen({ port, host: "::" }), "listening");
}

async function read(host: string, port: number): Promise<void> {
  const socket = connect({ host, port });
  sink = socket;
  socket.resume();
  socket.on("error", () => {});
  socket.on("close", () => over.resolve());
  await Promise.race([once(socket, "connect"), over.promise]);
}

async function moreBytes(): Promise<void> {
  if (sink !== undefined) await Promise.race([once(sink, "data"), over.promise]);
}

serveRequests(() => async (request: StreamRequest): Promise<StreamReply> => {
  if (request.kind === "source") await listen(request.port);
  else if (request.kind === "sink") await read(request.address, request.port);
  else if (request.kind === "flows") await moreBytes();
  else await over.promise;
  return { id: request.id, bytes: sink?.bytesRead ?? 0 };
});
