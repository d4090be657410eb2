/**
 * One who means harm, in a namespace: `idle HOST PORT COUNT` holds connections and asks for nothing; `pipeline HOST PORT COUNT
 * PATH` asks for a page many times and reads nothing; `probe HOST PORT PATH` asks over and over, each time on a new connection,
 * and tells at the end of its input what that took. Prints `ready` when it has begun.
 */
import { once } from "node:events";
import { connect } from "node:net";

/** An `import` of it loads a WebSocket client, too. */
const { get } = process.getBuiltinModule("node:http");

const [kind, host = "", portText = "", ...rest] = process.argv.slice(2);
const port = Number(portText);
const say = (line: string) => void process.stdout.write(`${line}\n`);

/** Refused or not: resolves when that is clear. */
function open(): Promise<void> {
  const socket = connect({ host, port });
  return new Promise((resolve) => {
    socket.on("connect", resolve);
    socket.on("error", () => resolve());
  });
}

/** @returns the milliseconds until the whole answer was there; NaN when there was none. */
function ask(path: string): Promise<number> {
  const startMs = performance.now();
  return new Promise((resolve) => {
    const request = get({ host, port, path, agent: false, timeout: 60_000 }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode === 200 ? performance.now() - startMs : Number.NaN));
      response.on("error", () => resolve(Number.NaN));
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(Number.NaN));
  });
}

if (kind === "idle") {
  for (let left = Number(rest[0]); left > 0; left -= 100) await Promise.all(Array.from({ length: 100 }, open));
  say("ready");
} else if (kind === "pipeline") {
  const socket = connect({ host, port });
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.pause();
  socket.write(`GET ${rest[1]} HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(Number(rest[0])));
  say("ready");
} else if (kind === "probe") {
  let isOver = false;
  process.stdin.resume().on("end", () => {
    isOver = true;
  });
  const tookMs: number[] = [];
  // The first pays for what both sides do once.
  for (let count = 0; count < 5; count++) await ask(rest[0] ?? "/");
  say("ready");
  let failed = 0;
  // How late this process itself is, on a machine that is busy.
  let lateMs = 0;
  while (!isOver) {
    const took = await ask(rest[0] ?? "/");
    if (Number.isNaN(took)) failed += 1;
    else tookMs.push(took);
    const restedMs = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 10));
    lateMs = Math.max(lateMs, performance.now() - restedMs - 10);
  }
  tookMs.sort((one, other) => one - other);
  const at = (share: number) => tookMs[Math.floor(share * (tookMs.length - 1))] ?? Number.POSITIVE_INFINITY;
  say(JSON.stringify({ count: tookMs.length, failed, medianMs: at(0.5), longestMs: at(1), lateMs }));
  process.exit(0);
}
// Holds what it has until it is ended.
setInterval(() => {}, 1_000_000);
