/** A proxy that refuses a watch with a response body that never ends. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createServer } from "../../../../kernel/node-http.ts";
import { transportWith } from "../testing/transport-with.ts";
import { ApiError } from "./api-error.ts";

test("a watch that is refused by half an answer ends with the refusal", async (t) => {
  const server = createServer((_request, response) => {
    response.writeHead(503, { "Content-Type": "text/plain" });
    response.write("no healthy ");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const transport = transportWith({ server: new URL(`http://127.0.0.1:${port}`) });
  t.after(() => transport.close());
  const watch = { verb: "watch", resource: "services", method: "GET", path: "/?watch=true", answerMs: 200 } as const;
  const stop = new AbortController();
  t.after(() => stop.abort());
  const ended = transport.send(watch, stop.signal).catch((error: unknown) => error);
  const error = await Promise.race([ended, sleep(5_000, "still waiting after 5 s", { ref: false })]);
  assert.ok(error instanceof ApiError, String(error));
  assert.deepEqual([error.code, error.facts.status], ["server_error", 503]);
  assert.match(error.message, /HTTP status 503: "no healthy"/);
});
