/** The thread of held-connection.ts: it opens TCP connections in its namespace and holds them until they are used or reset. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { serveRequests } from "../../../testkit/net/helper-side.ts";

export type HeldRequest =
  | { readonly id: number; readonly kind: "open"; readonly address: string; readonly port: number }
  /** Makes the request that the serving pods know; `connection` is from the reply to `open`. */
  | { readonly id: number; readonly kind: "use"; readonly connection: number }
  /** Ends it with a reset, which no kernel remembers for long. */
  | { readonly id: number; readonly kind: "reset"; readonly connection: number };

export interface HeldReply {
  readonly id: number;
  readonly connection: number;
  /** What the pod answered, or the connection's error; empty if there is neither. */
  readonly text: string;
}

interface Held {
  readonly socket: Socket;
  /** Resolves with everything received, or the error. */
  readonly over: Promise<string>;
}

const connections: Held[] = [];

function hold(socket: Socket): Held {
  const over = new Promise<string>((resolve) => {
    let answer = "";
    socket.on("data", (chunk) => {
      answer += String(chunk);
    });
    socket.on("error", (error) => resolve(error.message));
    socket.on("end", () => resolve(answer.slice(answer.indexOf("\r\n\r\n")).trim()));
  });
  return { socket, over };
}

function heldAs(connection: number): Held {
  const held = connections[connection];
  if (held === undefined) throw new TypeError(`no connection ${connection}`);
  return held;
}

async function answer(request: HeldRequest): Promise<Omit<HeldReply, "id">> {
  if (request.kind === "open") {
    const held = hold(connect({ host: request.address, port: request.port }));
    const failure = await Promise.race([once(held.socket, "connect").then(() => ""), held.over]);
    return { connection: connections.push(held) - 1, text: failure };
  }
  const { socket, over } = heldAs(request.connection);
  if (request.kind === "reset") {
    socket.resetAndDestroy();
    return { connection: request.connection, text: "" };
  }
  socket.write("GET / HTTP/1.0\r\n\r\n");
  return { connection: request.connection, text: await over };
}

serveRequests(
  () =>
    async (request: HeldRequest): Promise<HeldReply> => ({ id: request.id, ...(await answer(request)) }),
);
