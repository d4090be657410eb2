/**
 * One layout with its cluster in a namespace of its own. Argument: a PathTask as JSON. Writes a line when the cluster is in the
 * kernel, and after each line of standard input a PathRound as one line of JSON.
 */
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { benchService, benchSlice } from "./cluster.ts";
import { NftSubject } from "./nftables-subject.ts";
import { makeReachable } from "./reachable.ts";
import { quantile } from "./statistics.ts";

export interface PathTask {
  readonly layout: LayoutName;
  readonly services: number;
}

/** Connections one after the other, closed at once. */
export interface PathFigures {
  /** Until connected. */
  readonly p50Us: number;
  /** Of each, client, kernel and server. */
  readonly cpuUs: number;
}

export interface PathRound {
  readonly direct: PathFigures;
  readonly service: PathFigures;
}

const ENDPOINTS = 5;
const SERVER_PORT = 8080;
const CONNECTIONS = 400;
/** In turns, so that both are as warm. */
const AT_A_STRETCH = 50;
const SCATTER = 7919;

async function connected(host: string, port: number): Promise<number> {
  const startMs = performance.now();
  const socket = connect({ host, port });
  await once(socket, "connect");
  const tookUs = 1000 * (performance.now() - startMs);
  socket.resetAndDestroy();
  await once(socket, "close");
  return tookUs;
}

class Way {
  readonly #samples: number[] = [];
  #cpuUs = 0;
  readonly #destination: (n: number) => readonly [host: string, port: number];

  constructor(destination: (n: number) => readonly [host: string, port: number]) {
    this.#destination = destination;
  }

  async take(count: number): Promise<void> {
    const before = process.cpuUsage();
    for (let n = 0; n < count; n += 1) {
      this.#samples.push(await connected(...this.#destination(this.#samples.length * SCATTER)));
    }
    const { user, system } = process.cpuUsage(before);
    this.#cpuUs += user + system;
  }

  get figures(): PathFigures {
    return { p50Us: quantile(this.#samples, 0.5), cpuUs: this.#cpuUs / this.#samples.length };
  }
}

async function measure(services: number): Promise<PathRound> {
  const direct = new Way((n) => {
    const { endpoints } = benchSlice(n % services, ENDPOINTS);
    return [endpoints[n % ENDPOINTS]?.address ?? "", SERVER_PORT];
  });
  const service = new Way((n) => [benchService(n % services).clusterIP, 80]);
  for (let taken = 0; taken < CONNECTIONS; taken += AT_A_STRETCH) {
    await direct.take(AT_A_STRETCH);
    await service.take(AT_A_STRETCH);
  }
  return { direct: direct.figures, service: service.figures };
}

const { layout, services }: PathTask = JSON.parse(process.argv[2] ?? "{}");
makeReachable();
const server = createServer((socket) => socket.on("error", () => {}).resume());
server.listen(SERVER_PORT, "0.0.0.0", 1024);
await once(server, "listening");
const subject = new NftSubject(ENDPOINTS, layout);
subject.load(services);
await subject.fullSync(false);
await measure(services);
process.stdout.write("ready\n");
for await (const _line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await measure(services))}\n`);
}
