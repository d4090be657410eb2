/** How soon the first change is known after an outage of each form is over. `bench/api-storm.test.ts` has the exact bounds. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer as createTlsServer } from "node:https";
import { createServer, type Server, type Socket } from "node:net";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { CertificateAuthority } from "../../src/agent/cluster/apiserver/testing/certificates.ts";
import { systemClock } from "../../src/async/clock.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { PATIENCE, until } from "../../testkit/support/patience.ts";
import { BusyClock } from "../../testkit/support/processor-wait.ts";
import { service } from "./example-objects.ts";
import { some, start } from "./source-with-objects.ts";
import type { TestApiServer } from "./test-api-server.ts";

/** As long as waits that double take to grow beyond {@link LATEST_MS}. */
const AWAY_MS = 12_000;
const ROUNDS = 2;
/** In the better round. */
const GOAL_MS = 1_000;
/** In each: below any grown wait, above the delays of a busy machine. */
const LATEST_MS = 4_000;

/** Begins an outage. @returns what ends it. */
type Begin = (server: TestApiServer) => Promise<() => Promise<void>>;

/** Another server in the place of the API server. */
const replaced =
  (stand: () => Server): Begin =>
  async (server) => {
    const { port } = server;
    await server.shutDown();
    const sockets = new Set<Socket>();
    const other = stand().on("connection", (socket: Socket) => {
      sockets.add(socket);
      socket.on("error", () => {});
    });
    other.listen(port, "127.0.0.1");
    await once(other, "listening");
    return async () => {
      other.close();
      for (const socket of sockets) socket.destroy();
      await once(other, "close");
      await server.restart();
    };
  };

const answering =
  (code: number): Begin =>
  async (server) => {
    server.switches.fault = () => ({ kind: "status", code });
    server.cutConnections();
    return async () => {
      server.switches.fault = () => undefined;
    };
  };

const swallowed: Begin = async (server) => {
  const table = `kpts-away-${server.port}`;
  const input = `table ip ${table} { chain input { type filter hook input priority 0; tcp dport ${server.port} drop; }; }`;
  execFileSync("nft", ["-f", "-"], { input });
  server.cutConnections();
  return async () => void execFileSync("nft", ["delete", "table", "ip", table]);
};

const stranger = new CertificateAuthority().issue({ commonName: "server", names: ["127.0.0.1"] });

const FORMS: readonly (readonly [string, Begin, number?])[] = [
  ["refused", async (server) => server.shutDown().then(() => () => server.restart())],
  ["accepted and closed", replaced(() => createServer((socket) => socket.end()))],
  ["accepted and reset", replaced(() => createServer((socket) => socket.resetAndDestroy()))],
  [
    "a certificate of another authority",
    replaced(() => createTlsServer({ cert: stranger.certificate, key: stranger.key })),
  ],
  ["no TLS", replaced(() => createServer((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")))],
  ["401", answering(401)],
  ["502", answering(502)],
  ["503", answering(503)],
  ["packets are swallowed", swallowed, 3_000],
];

inNetns(import.meta.url, { name: "returns", timeoutMs: 120_000 }, () => {
  describe("the first change is known soon after the end of an outage", { concurrency: true }, () => {
    for (const [form, begin, goalMs = GOAL_MS] of FORMS) {
      test(form, async (t) => {
        const { server, sink } = await start(t, { clock: systemClock, prepare: some });
        const took: number[] = [];
        for (let round = 0; round < ROUNDS; round++) {
          await until("all watches", () => server.watches().length === 4);
          const end = await begin(server);
          await sleep(AWAY_MS + 300 * round);
          await end();
          const clock = new BusyClock("self");
          server.put("services", service(200 + round));
          await until("the change", () => sink.state.services.has(`default/svc-${200 + round}`), { pauseMs: 20 });
          took.push(Math.round(clock.elapsedMs()));
        }
        assert.ok(Math.min(...took) <= goalMs * PATIENCE, `${took.join(", ")} ms`);
        assert.ok(Math.max(...took) <= (goalMs + LATEST_MS) * PATIENCE, `${took.join(", ")} ms`);
        t.diagnostic(`${took.join(", ")} ms`);
      });
    }
  });
});
