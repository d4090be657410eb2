/**
 * The test API server in a process of its own, started with `fork`: says when it is ready, and changes endpoints at a
 * given rate when it is told to.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { node, serviceCidr } from "../test/apiserver/example-objects.ts";
import { RESOURCE_TYPES } from "../test/apiserver/resource-types.ts";
import { TestApiServer } from "../test/apiserver/test-api-server.ts";
import { PROTOBUF_WIRE } from "../test/apiserver/wire-format.ts";
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
  | {
      readonly kind: "done";
      readonly events: number;
      /** Of bodies, during the changes. */
      readonly bytes: number;
      /** The same, since the start until then. */
      readonly bytesBefore: number;
      readonly seconds: number;
    };

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
  let listBytes = 0;
  for (const plural of ["services", "endpointslices"] as const) {
    for (const version of store.objects(plural).values()) {
      listBytes += version.json.length;
      // Written beforehand, as the JSON is.
      PROTOBUF_WIRE.event("ADDED", RESOURCE_TYPES[plural], version);
    }
  }
  const say = (report: ServerReport): void => void process.send?.(report);
  let generation = 0;
  let next = 0;
  process.on("message", ({ eventsPerSecond, seconds }: ServerCommand) => {
    void (async () => {
      const startMs = performance.now();
      let events = 0;
      const bytesBefore = server.sentBytes;
      while (events < eventsPerSecond * seconds) {
        const dueEvents = Math.min(eventsPerSecond * seconds, ((performance.now() - startMs) / 1000) * eventsPerSecond);
        for (; events < dueEvents; events++) {
          if (next % services === 0) generation++;
          // Neighbours are far apart, as in a real cluster.
          const index = (next++ * 7919) % services;
          store.put("endpointslices", apiSlice(index, endpointsEach, generation, Date.now()));
        }
        await sleep(TICK_MS);
      }
      store.compact();
      const bytes = server.sentBytes - bytesBefore;
      say({ kind: "done", events, bytes, bytesBefore, seconds: (performance.now() - startMs) / 1000 });
    })();
  });
  process.on("disconnect", () => process.exit());
  say({ kind: "ready", url: server.url, ca: server.authority.certificate, listBytes });
}

await main(JSON.parse(process.argv[2] ?? "{}"));
