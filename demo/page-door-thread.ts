/** Runs inside the node: forwards connections to a Unix socket to the page, at the loopback address of that namespace. */
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { pipeline } from "node:stream";
import { serveRequests } from "../testkit/net/helper-side.ts";
import type { Numbered } from "../testkit/net/helper-thread.ts";

export interface DoorRequest extends Numbered {
  /** Path of the Unix socket. */
  readonly path: string;
  /** Port of the page, at 127.0.0.1. */
  readonly port: number;
}

serveRequests<DoorRequest, Numbered>(() => async ({ id, path, port }) => {
  const server = createServer((outer) => {
    const inner = connect({ host: "127.0.0.1", port });
    // When one connection ends, so does the other.
    pipeline(outer, inner, outer, () => {});
  });
  server.listen(path);
  await once(server, "listening");
  return { id };
});
