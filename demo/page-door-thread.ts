/** Inside of the node: leads what connects to a Unix socket to the page, whose address is another namespace's loopback. */
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { pipeline } from "node:stream";
import { serveRequests } from "../testkit/net/helper-side.ts";
import type { Numbered } from "../testkit/net/helper-thread.ts";

export interface DoorRequest extends Numbered {
  /** Of the Unix socket. */
  readonly path: string;
  /** Of the page, at 127.0.0.1. */
  readonly port: number;
}

serveRequests<DoorRequest, Numbered>(() => async ({ id, path, port }) => {
  const server = createServer((outer) => {
    const inner = connect({ host: "127.0.0.1", port });
    // Both are over when one of them is.
    pipeline(outer, inner, outer, () => {});
  });
  server.listen(path);
  await once(server, "listening");
  return { id };
});
