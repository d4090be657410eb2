/**
 * The test API server in a process of its own, started with `fork`: says when it is ready, and changes endpoints at a
 * given rate when it is told to.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { node, serviceCidr } from "../test/apiserver/example-objects.ts";
import { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { apiService, apiSlice } from "./api-objects.ts";

export interface ServerTask {
  readonly services: number;
  readonly endpointsEach: number;
  /** Whether lists can be streamed; otherwise they are read in pages. */
  readonly hasWatchList: boolean;
}

export type ServerCommand = { readonly eventsPerSecond: number; readonly seconds: number };

export type ServerReport =
  | { readonly kind: "ready"; readonly url: string; readonly ca: string; readonly listBytes: number }
  | { readonly kind: "done"; readonly events: number; readonly bytes: number; readonly seconds: number };

const TICK_MS = 10;

async function main({ services, endpointsEach, hasWatchList }: ServerTask): Promise<void> {
  const server = await TestApiServer.start();
  const { store, switches } = server;
  switches.hasWatchList = hasWatchList;
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  for (let index = 0; index < services; index++) {
    server.put("services", apiService(index));
    server.put("endpointslices", apiSlice(index, endpointsEach, 0, Date.now()));
  }
  store.restart();
  const lengths = (["services", "endpointslices"] as const).flatMap((plural) =>
    Array.from(store.objects(plural).values(), ({ json }) => json.length),
  );
  const say = (report: ServerReport): void => void process.send?.(report);
  let generation = 0;
  let next = 0;
  process.on("message", ({ eventsPerSecond, seconds }: ServerCommand) => {
    void (async () => {
      const startMs = performance.now();
      let events = 0;
      let bytes = 0;
      while (events < eventsPerSecond * seconds) {
        const dueEvents = Math.min(eventsPerSecond * seconds, ((performance.now() - startMs) / 1000) * eventsPerSecond);
        for (; events < dueEvents; events++) {
          if (next % services === 0) generation++;
          // Neighbours are far apart, as in a real cluster.
          const index = (next++ * 7919) % services;
          bytes += JSON.stringify(
            store.put("endpointslices", apiSlice(index, endpointsEach, generation, Date.now())),
          ).length;
        }
        await sleep(TICK_MS);
      }
      store.compact();
      say({ kind: "done", events, bytes, seconds: (performance.now() - startMs) / 1000 });
    })();
  });
  process.on("disconnect", () => process.exit());
  const listBytes = lengths.reduce((sum, length) => sum + length, 0);
  say({ kind: "ready", url: server.url, ca: server.authority.certificate, listBytes });
}

await main(JSON.parse(process.argv[2] ?? "{}"));
