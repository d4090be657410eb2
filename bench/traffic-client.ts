/**
 * The client: `node traffic-client.ts LOAD ADDRESS PORT SECONDS` writes its figures as JSON.
 *
 * - `connections`: one after the other in 32 lanes, each with one byte there and one back
 * - `download`, `upload`: four connections at full speed
 * - `answers`: 100 bytes there and back over one connection, one at a time
 * - `first answers`: a connection for every answer, one at a time
 */
import { once } from "node:events";
import { connect, type NetConnectOpts, type OnReadOpts, type Socket } from "node:net";
import { quantile } from "./table.ts";
import { type ClientFigures, type Load, OPENING } from "./traffic-figures.ts";

const LANES = 32;
const STREAMS = 4;
const ANSWER_BYTES = 100;
const CHUNK_BYTES = 262_144;

const [load, host, port, seconds] = process.argv.slice(2) as [Load, string, string, string];
const opening = OPENING[load];
const samplesMs: number[] = [];
let count = 0;
let isOver = false;

function open(onread?: OnReadOpts): Socket {
  const options: NetConnectOpts = { host, port: Number(port), noDelay: true };
  return connect(onread === undefined ? options : { ...options, onread });
}

/** One connection with one byte there and one back. */
async function oneConnection(): Promise<void> {
  const socket = open();
  socket.write(opening);
  socket.resume();
  await once(socket, "close");
}

async function connectionLane(): Promise<void> {
  while (!isOver) {
    await oneConnection();
    count++;
  }
}

async function download(): Promise<void> {
  const callback = (bytes: number): boolean => {
    count += bytes;
    return !isOver;
  };
  const socket = open({ buffer: Buffer.alloc(4 * CHUNK_BYTES), callback });
  socket.write(opening);
  await once(socket, "close");
}

async function upload(): Promise<void> {
  const socket = open();
  const chunk = Buffer.alloc(CHUNK_BYTES, opening);
  while (!isOver) {
    if (!socket.write(chunk)) await once(socket, "drain");
    count += chunk.length;
  }
}

async function answers(): Promise<void> {
  const socket = open();
  await once(socket, "connect");
  const request = Buffer.alloc(ANSWER_BYTES, opening);
  while (!isOver) {
    const startMs = performance.now();
    socket.write(request);
    for (let received = 0; received < ANSWER_BYTES; ) received += (await once(socket, "data"))[0].length;
    samplesMs.push(performance.now() - startMs);
    count++;
  }
}

async function firstAnswers(): Promise<void> {
  while (!isOver) {
    const startMs = performance.now();
    const socket = open();
    socket.write(opening);
    await once(socket, "data");
    samplesMs.push(performance.now() - startMs);
    count++;
    await once(socket, "close");
  }
}

const WORK: Readonly<Record<Load, readonly [lanes: number, work: () => Promise<void>]>> = {
  connections: [LANES, connectionLane],
  download: [STREAMS, download],
  upload: [STREAMS, upload],
  answers: [1, answers],
  "first answers": [1, firstAnswers],
};

const startMs = performance.now();
const cpuBefore = process.cpuUsage();
/** Ends with the time, but not before there is anything to tell: a busy machine may be late with the first answer. */
function finish(): void {
  if (count === 0) {
    setTimeout(finish, 10);
    return;
  }
  const elapsed = (performance.now() - startMs) / 1000;
  const { user, system } = process.cpuUsage(cpuBefore);
  isOver = true;
  const figures: ClientFigures = {
    seconds: elapsed,
    count,
    p50Ms: quantile(samplesMs, 0.5),
    p99Ms: quantile(samplesMs, 0.99),
    cpuMs: (user + system) / 1000,
  };
  process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit());
}

setTimeout(finish, Number(seconds) * 1000);
const [lanes, work] = WORK[load];
await Promise.all(Array.from({ length: lanes }, work));
