/** A response that Node.js discards: it closes the connection without an error, and the request must still end. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { transportWith } from "../testing/transport-with.ts";

test("a server that switches to another protocol without being asked", async (t) => {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () =>
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const transport = transportWith({ server: new URL(`http://127.0.0.1:${port}`) });
  t.after(() => transport.close());
  const request = { verb: "list", resource: "services", method: "GET", path: "/" } as const;
  const sent = transport.send(request, new AbortController().signal).catch((error: unknown) => error);
  const ended = await Promise.race([sent, sleep(3_000, "still waiting after 3 s", { ref: false })]);
  assert.match(String(ended), /closed without a response: the connection was cut/);
});
