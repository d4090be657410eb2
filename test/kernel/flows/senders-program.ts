/** The thread of senders.ts: UDP sockets that send continuously, and what answered them when. */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { serveRequests } from "../../../testkit/net/helper-side.ts";
import type { BackendAnswer } from "../../../testkit/net/messages.ts";

export type SendersRequest = { readonly id: number } & (
  | {
      readonly kind: "start";
      readonly family: "IPv4" | "IPv6";
      readonly address: string;
      readonly port: number;
      readonly count: number;
    }
  | { readonly kind: "look" }
);

export interface SendersReply {
  readonly id: number;
  /** When each pod last answered, in Unix milliseconds. */
  readonly lastMs: Readonly<Record<string, number>>;
}

/** Each socket's sending interval. */
const EVERY_MS = 250;
const lastMs: Record<string, number> = {};

async function start({ family, address, port, count }: Extract<SendersRequest, { kind: "start" }>): Promise<void> {
  for (let at = 0; at < count; at += 1) {
    const socket = createSocket(family === "IPv4" ? "udp4" : "udp6");
    socket.on("message", (text) => {
      lastMs[(JSON.parse(String(text)) as BackendAnswer).pod] = Date.now();
    });
    // Refusals are reported as errors.
    socket.on("error", () => {});
    await once(socket.bind(0), "listening");
    const send = (): void => socket.send("?", port, address, () => {});
    setTimeout(() => setInterval(send, EVERY_MS), (at % 50) * (EVERY_MS / 50));
    send();
  }
}

serveRequests<SendersRequest, SendersReply>(() => async (request) => {
  if (request.kind === "start") await start(request);
  return { id: request.id, lastMs: { ...lastMs } };
});
