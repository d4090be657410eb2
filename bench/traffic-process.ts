/**
 * The processes of `npm run bench -- userspace`, by the first argument: `server ADDRESS PORT`, an endpoint that does what the first byte of
 * a connection says; `pipe ADDRESS PORT TO-ADDRESS TO-PORT`, the cost of a proxy written in ten lines; and `client LOAD ADDRESS PORT
 * SECONDS`, which writes {@link ClientFigures} as JSON.
 */
import { once } from "node:events";
import { connect, createServer, type OnReadOpts, type Server, type Socket } from "node:net";
import { cpuMsOf } from "./memory.ts";
import { type Spread, spread } from "./table.ts";
import type { Load } from "./userspace.ts";

/** What a client counted. */
export interface ClientFigures {
  readonly seconds: number;
  /** Connections, bytes or answers. */
  readonly count: number;
  /** Per answer, milliseconds; 0 for other loads. */
  readonly latencyMs: Spread;
  readonly cpuMs: number;
}

const CHUNK_BYTES = 262_144;
const ANSWER_BYTES = 100;

/** A client's first byte, which tells the server what is wanted. */
const OPENING: Readonly<Record<Load, string>> = {
  connections: "C",
  download: "D",
  upload: "U",
  answers: "E",
};

function listen(server: Server, host: string, port: string): void {
  server.listen({ host, port: Number(port), backlog: 4096 }, () => process.stdout.write("ready\n"));
}

function serve(host: string, port: string): void {
  const chunk = Buffer.alloc(CHUNK_BYTES, 1);
  const sendForever = (socket: Socket): void => {
    while (!socket.destroyed && socket.write(chunk));
  };
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    socket.once("data", (first) => {
      const opening = first.toString("latin1", 0, 1);
      if (opening === OPENING.connections) socket.end("x");
      else if (opening === OPENING.download) {
        socket.on("drain", () => sendForever(socket));
        sendForever(socket);
      } else if (opening === OPENING.answers) {
        socket.write(first);
        socket.on("data", (bytes) => socket.write(bytes));
      } else socket.on("data", () => {});
    });
  });
  listen(server, host, port);
}

function pipe(host: string, port: string, toHost: string, toPort: string): void {
  const options = { allowHalfOpen: true, noDelay: true };
  const server = createServer(options, (client) => {
    const endpoint = connect({ host: toHost, port: Number(toPort), ...options });
    client.on("error", () => endpoint.destroy()).pipe(endpoint);
    endpoint.on("error", () => client.destroy()).pipe(client);
  });
  listen(server, host, port);
}

async function measure(load: Load, host: string, port: string, seconds: string): Promise<void> {
  const opening = OPENING[load];
  const samplesMs: number[] = [];
  let [count, isOver] = [0, false];
  const open = (onread?: OnReadOpts): Socket => {
    const options = { host, port: Number(port), noDelay: true };
    return connect(onread === undefined ? options : { ...options, onread });
  };
  const timedAnswer = async (answer: () => Promise<void>): Promise<void> => {
    const startMs = performance.now();
    await answer();
    samplesMs.push(performance.now() - startMs);
    count += 1;
  };
  /** By load: how many at once, and what each does until the time is over. */
  const work: Readonly<Record<Load, readonly [lanes: number, work: () => Promise<void>]>> = {
    connections: [
      32,
      async () => {
        while (!isOver) {
          const socket = open();
          socket.write(opening);
          socket.resume();
          await once(socket, "close");
          count += 1;
        }
      },
    ],
    download: [
      4,
      async () => {
        const callback = (bytes: number): boolean => {
          count += bytes;
          return !isOver;
        };
        const socket = open({ buffer: Buffer.alloc(4 * CHUNK_BYTES), callback });
        socket.write(opening);
        await once(socket, "close");
      },
    ],
    upload: [
      4,
      async () => {
        const socket = open();
        const chunk = Buffer.alloc(CHUNK_BYTES, opening);
        while (!isOver) {
          if (!socket.write(chunk)) await once(socket, "drain");
          count += chunk.length;
        }
      },
    ],
    answers: [
      1,
      async () => {
        const socket = open();
        await once(socket, "connect");
        const request = Buffer.alloc(ANSWER_BYTES, opening);
        while (!isOver) {
          await timedAnswer(async () => {
            socket.write(request);
            for (let received = 0; received < ANSWER_BYTES; ) received += (await once(socket, "data"))[0].length;
          });
        }
      },
    ],
  };
  const [lanes, lane] = work[load];
  const startMs = performance.now();
  const cpuMs = await cpuMsOf(async () => {
    for (let n = 0; n < lanes; n += 1) void lane();
    // Not before there is something to report: a busy machine may be late with the first answer.
    do await new Promise((resolve) => setTimeout(resolve, count === 0 ? Number(seconds) * 1000 : 10));
    while (count === 0);
  });
  const figures: ClientFigures = {
    seconds: (performance.now() - startMs) / 1000,
    ...{ count, latencyMs: spread(samplesMs), cpuMs },
  };
  isOver = true;
  process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit());
}

const [role, one = "", two = "", three = "", four = ""] = process.argv.slice(2);
if (role === "server") serve(one, two);
else if (role === "pipe") pipe(one, two, three, four);
else await measure(one as Load, two, three, four); // userspace.ts is what starts it
