/**
 * Bytes that flow for as long as they may. `source PORT` sends to every client; `sink ADDRESS PORT` reads, prints
 * `open`, `bytes N` now and then, and at last `end`.
 */
import { connect, createServer } from "node:net";

const CHUNK = Buffer.alloc(16 * 1024, "x");
const PERIOD_MS = 10;
const say = (line: string): void => void process.stdout.write(`${line}\n`);
const [role, ...rest] = process.argv.slice(2);

if (role === "source") {
  const server = createServer((socket) => {
    const timer = setInterval(() => socket.write(CHUNK), PERIOD_MS);
    socket.on("error", () => {});
    socket.on("close", () => clearInterval(timer));
  });
  server.listen({ port: Number(rest[0]), host: "::" }, () => say("open"));
} else {
  const socket = connect({ host: rest[0] ?? "", port: Number(rest[1]) });
  let bytes = 0;
  const timer = setInterval(() => say(`bytes ${bytes}`), 5 * PERIOD_MS);
  socket.on("connect", () => say("open"));
  socket.on("data", (chunk) => {
    bytes += chunk.length;
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    clearInterval(timer);
    say("end");
  });
}
