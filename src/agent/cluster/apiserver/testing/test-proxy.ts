/** An HTTP proxy for tests, on a free port of 127.0.0.1. */
import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TestContext } from "node:test";
import { createServer } from "../../../../kernel/node-http.ts";

interface TestProxy {
  readonly port: number;
  readonly url: string;
  /** Open connections. */
  readonly connections: ReadonlySet<Socket>;
  /** How many tunnels were requested. */
  readonly tunnels: () => number;
}

/** Starts the proxy, which ends with the test. @param answer handles a tunnel request. @default opens the tunnel */
export async function startProxy(
  t: TestContext,
  answer: (connection: Duplex, target: string) => void = passOn,
): Promise<TestProxy> {
  const connections = new Set<Socket>();
  let tunnels = 0;
  const proxy = createServer().on("connect", ({ url = "" }, connection) => {
    tunnels++;
    connection.on("error", () => {}).on("end", () => connection.end());
    answer(connection, url);
  });
  proxy.on("connection", (connection: Socket) => {
    connections.add(connection);
    connection.on("close", () => connections.delete(connection));
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => {
    for (const connection of connections) connection.destroy();
    proxy.close();
  });
  const { port } = proxy.address() as AddressInfo;
  return { port, url: `http://127.0.0.1:${port}`, connections, tunnels: () => tunnels };
}

export function passOn(connection: Duplex, target: string): void {
  const [host = "", port] = target.split(":");
  const upstream = connect(Number(port), host, () => {
    connection.write("HTTP/1.1 200 OK\r\n\r\n");
    upstream.pipe(connection).pipe(upstream);
  });
  upstream.on("error", () => {});
}
