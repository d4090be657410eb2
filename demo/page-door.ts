/** Lets a browser on this machine reach the proxy's page inside the node, at a free port of the loopback address. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream";
import { HelperThread, type Numbered } from "../testkit/net/helper-thread.ts";
import type { NetworkNamespace } from "../testkit/net/network-namespace.ts";
import type { DoorRequest } from "./page-door-thread.ts";

const PROGRAM = new URL("page-door-thread.ts", import.meta.url);

/** Always end it with {@link PageDoor.close}. */
export class PageDoor {
  readonly url: string;
  readonly #helper: HelperThread<DoorRequest, Numbered>;
  readonly #folder: string;
  readonly #server: Server;
  readonly #sockets: ReadonlySet<Socket>;

  private constructor(
    helper: HelperThread<DoorRequest, Numbered>,
    folder: string,
    { server, sockets }: { readonly server: Server; readonly sockets: ReadonlySet<Socket> },
  ) {
    this.#helper = helper;
    this.#folder = folder;
    this.#server = server;
    this.#sockets = sockets;
    const { port } = server.address() as AddressInfo; // it listens
    this.url = `http://127.0.0.1:${port}/`;
  }

  /** @param port of the page inside the node. */
  static async open(namespace: NetworkNamespace, port: number): Promise<PageDoor> {
    const folder = await mkdtemp(join(tmpdir(), `${namespace.name}-`));
    const path = join(folder, "page.sock");
    const helper = new HelperThread<DoorRequest, Numbered>(namespace, PROGRAM);
    await helper.ask({ path, port });
    const sockets = new Set<Socket>();
    const server = createServer((outer) => {
      sockets.add(outer);
      outer.on("close", () => sockets.delete(outer));
      pipeline(outer, connect(path), outer, () => {});
    });
    server.listen({ host: "127.0.0.1", port: 0 });
    await once(server, "listening");
    return new PageDoor(helper, folder, { server, sockets });
  }

  async close(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#helper.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
