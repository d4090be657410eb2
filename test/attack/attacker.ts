/**
 * One who means harm, in a namespace: `idle HOST PORT COUNT` holds connections and asks for nothing; `pipeline HOST PORT COUNT
 * PATH` asks for a page many times and reads nothing; `hang-up HOST PORT PATH` asks and hangs up, twelve at a time; `flood HOST PORT
 * WHAT` is an API server whose watch of Services never stops writing; `probe HOST PORT PATH PID` asks the process over and over, each time on a new
 * connection, and tells at the end of its input what that took. Prints `ready` when it has begun.
 */
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import { BusyClock } from "../../testkit/support/processor-wait.ts";

/** An `import` of it loads a WebSocket client, too. */
const { createServer, get } = process.getBuiltinModule("node:http");

const [kind, host = "", portText = "", ...rest] = process.argv.slice(2);
const port = Number(portText);
const NODE_STATUS = { addresses: [{ type: "InternalIP", address: "10.200.0.2" }] };
const say = (line: string) => void process.stdout.write(`${line}\n`);

/** Refused or not: resolves when that is clear. */
function open(): Promise<void> {
  const socket = connect({ host, port });
  return new Promise((resolve) => {
    socket.on("connect", resolve);
    socket.on("error", () => resolve());
  });
}

/** @returns the milliseconds until the whole answer was there, but for waits for a processor; NaN when there was none. */
function ask(path: string, pid: number): Promise<number> {
  const clock = new BusyClock(pid, "self");
  return new Promise((resolve) => {
    const request = get({ host, port, path, agent: false, timeout: 60_000 }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode === 200 ? clock.elapsedMs() : Number.NaN));
      response.on("error", () => resolve(Number.NaN));
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(Number.NaN));
  });
}

/** Asks, and ends the connection with a reset soon after. */
function hangUp(path: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect({ host, port }, () => {
      socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
      setTimeout(() => socket.resetAndDestroy(), 15);
    });
    socket.on("error", () => {}).on("close", () => resolve());
  });
}

/** A list without objects, initial events without any, and then, of Services, a flood. */
function answerAsApi({ url = "/" }: IncomingMessage, response: ServerResponse): void {
  const { pathname, searchParams } = new URL(url, "http://server");
  const metadata = { resourceVersion: "7" };
  response.writeHead(200, { "Content-Type": "application/json" });
  if (searchParams.get("watch") !== "true") {
    const isOne = /\/nodes\/[^/]+$/.test(pathname);
    const list = { kind: "List", apiVersion: "v1", metadata, items: [] };
    const node = { kind: "Node", apiVersion: "v1", metadata: { ...metadata, name: "node-a" }, status: NODE_STATUS };
    response.end(JSON.stringify(isOne ? node : list));
    return;
  }
  const annotations = { "k8s.io/initial-events-end": "true" };
  response.write(`${JSON.stringify({ type: "BOOKMARK", object: { metadata: { ...metadata, annotations } } })}\n`);
  if (pathname.endsWith("/services")) pour(response, rest[0] ?? "");
}

function pour(response: ServerResponse, what: string): void {
  let count = 0;
  const go = (): void => {
    while (response.write(portionOf(what, count++))) if (response.destroyed) return;
  };
  response.on("drain", go);
  go();
}

/** About 64 KiB of a flood. */
function portionOf(what: string, count: number): string {
  if (what === "blank lines") return "\n".repeat(65_536);
  if (what === "deep") return `{"type":"ADDED","object":${'{"a":'.repeat(1_000_000)}1${"}".repeat(1_000_000)}}\n`;
  const event = (index: number) => {
    const number = 10 + count * 200 + index;
    const metadata = { namespace: "d", name: what === "ADDED" ? `s${number}` : "s", resourceVersion: `${number}` };
    const ip = `10.${96 + ((number >> 16) & 15)}.${(number >> 8) & 255}.${number & 255}`;
    const spec = what === "unusable" ? 7 : { clusterIP: ip, clusterIPs: [ip], ports: [{ port: 80, protocol: "TCP" }] };
    const name = what === "unusable" ? `u${number}` : metadata.name;
    const type = what === "unusable" ? "ADDED" : what;
    return JSON.stringify({
      type,
      object: { kind: "Service", apiVersion: "v1", metadata: { ...metadata, name }, spec },
    });
  };
  return `${Array.from({ length: 200 }, (_, index) => event(index)).join("\n")}\n`;
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
} else if (kind === "hang-up") {
  say("ready");
  for (;;) await Promise.all(Array.from({ length: 12 }, () => hangUp(rest[0] ?? "/")));
} else if (kind === "flood") {
  await new Promise<void>((resolve) => createServer(answerAsApi).listen(port, host, resolve));
  say("ready");
} else if (kind === "probe") {
  let isOver = false;
  process.stdin.resume().on("end", () => {
    isOver = true;
  });
  const tookMs: number[] = [];
  // The first pays for what both sides do once.
  const [path = "/", pid] = rest;
  for (let count = 0; count < 5; count++) await ask(path, Number(pid));
  say("ready");
  let failed = 0;
  while (!isOver) {
    const took = await ask(path, Number(pid));
    if (Number.isNaN(took)) failed += 1;
    else tookMs.push(took);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  tookMs.sort((one, other) => one - other);
  const at = (share: number) => tookMs[Math.floor(share * (tookMs.length - 1))] ?? Number.POSITIVE_INFINITY;
  say(JSON.stringify({ count: tookMs.length, failed, medianMs: at(0.5), longestMs: at(1) }));
  process.exit(0);
}
// Holds what it has until it is ended.
setInterval(() => {}, 1_000_000);
