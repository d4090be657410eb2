/**
 * The inspect socket: a Unix socket, mode 0600, on which a running daemon answers `/status`, `/configuration`, `/services`,
 * `/ports`, `/connections` and `/journal` with JSON, and serves the page to `kube-proxy page`. Read-only. Without `--inspect-socket` there is none.
 */
import { once } from "node:events";
import { existsSync, lstatSync, mkdirSync, readlinkSync, unlinkSync } from "node:fs";
import type { Server, ServerResponse } from "node:http";
import { connect } from "node:net";
import { dirname } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { systemClock } from "../../async/clock.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { statisticsNotes } from "../../kernel/conntrack/statistics.ts";
import { createServer } from "../../kernel/node-http.ts";
import { attempt } from "../../logging/attempt.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { DEFAULT_INSPECT_SOCKET } from "../../program/program-identity.ts";
import { type HttpHandler, pathOf, queryOf } from "../server/http/routes.ts";
import { toV1Alpha1 } from "../settings/v1alpha1-encode.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { SyncRecord } from "../sync/journal/sync-record.ts";
import {
  type InspectedDaemon,
  ledFlows,
  portLines,
  type StatusReport,
  serviceLines,
  statusReport,
} from "./inspect-report.ts";

export type { SyncRecord } from "../sync/journal/sync-record.ts";

/** Set while the socket is created, so that only its owner can open it from the first moment. */
const PRIVATE_UMASK = 0o177;
const IDLE_MS = 5_000;
/** The page's questions about the state are held for half a minute, unfinished. */
const REQUEST_MS = 60_000;
/** A page asks every few seconds while it is visible. */
const KEEP_ALIVE_MS = 60_000;
const PIECE_LENGTH = 32 * 1024;
/** Journal readers stay connected. */
const MAX_CONNECTIONS = 64;
/** sun_path of sys/un.h, without the final zero. */
const MAX_PATH_BYTES = 107;
/** How often to check whether another daemon has left the path. */
const RETRY_MS = 200;
const WRONG_QUESTION = { error: "ask GET /status, /configuration, /services, /ports, /connections or /journal" };

/** The document, its files, and its questions. */
const PAGE_PATH = /^\/(?:[\w-]+\.\w+|api\/\w+)?$/;

interface InspectSocketOptions {
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** @default there is none */
  readonly page?: () => Promise<HttpHandler>;
}

/**
 * Listens until the signal aborts. If the path cannot be bound, logs that, and the daemon runs without the socket.
 *
 * @returns settles when it is closed and the path is gone.
 */
export async function serveInspectSocket(
  path: string,
  daemon: InspectedDaemon,
  { log, signal, page }: InspectSocketOptions,
): Promise<void> {
  const server = createServer(
    { requestTimeout: REQUEST_MS, headersTimeout: IDLE_MS, keepAliveTimeout: KEEP_ALIVE_MS },
    (request, response) => {
      const path = request.method === "GET" ? pathOf(request) : undefined;
      const query = queryOf(request);
      if (path === "/journal") {
        const last = Number(query.get("last") ?? "0");
        streamJournal(daemon.journal, response, { last, follows: query.get("follow") !== "false", signal });
        return;
      }
      const end = (status: number, answer: unknown): void => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(`${JSON.stringify(answer)}\n`);
      };
      const refuse = (error: unknown): void => end(500, { error: messageOf(error) });
      // A reader that disconnects ends the answer; there is no one to tell.
      const list = (lines: Iterable<unknown>): void => {
        pipeline(Readable.from(listText(lines), { objectMode: false }), response).catch(() => {});
        response.writeHead(200, { "content-type": "application/json" });
      };
      if (path === "/services") {
        list(serviceLines(daemon, query.get("service") ?? undefined));
        return;
      }
      if (path === "/ports") {
        list(portLines(daemon, query.get("service") ?? ""));
        return;
      }
      if (path === "/connections") {
        ledFlows(daemon).then(list, refuse);
        return;
      }
      const { config, node } = daemon;
      if (path === "/configuration" && config !== undefined) {
        end(200, { ...toV1Alpha1(config), hostnameOverride: node });
      } else if (path === "/status") {
        wholeStatus(daemon).then((status) => end(200, status), refuse);
      } else if (path !== undefined && page !== undefined && PAGE_PATH.test(path)) {
        page()
          .then((handler) => handler(request, response))
          .catch((error: unknown) => (response.headersSent ? response.destroy() : refuse(error)));
      } else end(404, WRONG_QUESTION);
    },
  );
  server.maxConnections = MAX_CONNECTIONS;
  try {
    if (existsSync(path)) await untilFree(path, { log, signal });
    if (signal.aborted) return;
    makeWay(path);
    await listen(server, path);
  } catch (error) {
    log.error("Cannot open the inspect socket; continuing without it", error, { path });
    return;
  }
  log.info("Answering on the inspect socket", { path });
  if (!signal.aborted) await once(signal, "abort");
  await new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
}

/** Includes what the kernel says about connection tracking, if it does. */
async function wholeStatus(
  daemon: InspectedDaemon,
): Promise<StatusReport & { readonly networkNamespace: string | undefined }> {
  const tracking = await daemon.conntrack?.statistics?.().catch(() => undefined);
  // Lets others see whether they have the same rules and connections.
  const networkNamespace = attempt(() => readlinkSync("/proc/self/ns/net"));
  // The families have one ruleset.
  const chainHistory = await daemon.families[0]?.backend?.chainHistory?.().catch(() => undefined);
  const status = { ...statusReport(daemon), networkNamespace, chainHistory };
  if (tracking === undefined) return status;
  return { ...status, connectionTracking: { ...tracking, notes: statisticsNotes(tracking) } };
}

/** A list as JSON, in pieces between which the daemon continues its work. */
async function* listText(items: Iterable<unknown>): AsyncGenerator<string, void> {
  let text = "[";
  let separator = "";
  for (const item of items) {
    text += `${separator}${JSON.stringify(item)}`;
    separator = ",\n";
    if (text.length > PIECE_LENGTH) {
      yield text;
      text = "";
    }
    if (isTurnDue()) await giveTurn();
  }
  yield `${text}]\n`;
}

/**
 * Removes a socket that a killed daemon left; anything else at the path stays. @throws Error that says what is in the
 * way, where the system would only mention addresses, arguments or permissions.
 */
function makeWay(path: string): void {
  // Pipe names end with their server.
  if (process.platform === "win32") return;
  const length = Buffer.byteLength(path);
  if (length > MAX_PATH_BYTES) {
    throw new Error(`a socket path has at most ${MAX_PATH_BYTES} bytes, this one has ${length}`);
  }
  const folder = dirname(path);
  if (path === DEFAULT_INSPECT_SOCKET) mkdirSync(folder, { recursive: true });
  if (!existsSync(folder)) throw new Error(`there is no folder ${folder}`);
  const present = lstatSync(path, { throwIfNoEntry: false });
  if (present?.isSocket() === true) unlinkSync(path);
  else if (present !== undefined) throw new Error("a file that is not a socket is there, and is left alone");
}

/** Two daemons overlap for a while during an update; the first one keeps the path until it ends. */
async function untilFree(path: string, { log, signal }: InspectSocketOptions): Promise<void> {
  if (process.platform === "win32") return;
  for (let isTold = false; await isAnswered(path); isTold = true) {
    if (!isTold) log.warn("Another daemon answers on the inspect socket; waiting until it ends", { path });
    await systemClock.sleep(RETRY_MS, signal);
    if (signal.aborted) return;
  }
}

/** Whether a process accepts connections there: the socket of a killed one refuses them. */
function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asking = connect(path, () => {
      asking.destroy();
      resolve(true);
    });
    asking.once("error", () => resolve(false));
  });
}

async function listen(server: Server, path: string): Promise<void> {
  const umask = process.umask(PRIVATE_UMASK);
  try {
    // The path is bound before this returns.
    server.listen(path);
  } finally {
    process.umask(umask);
  }
  await once(server, "listening");
  server.on("error", () => {});
}

export type JournalLine = SyncRecord | { readonly missed: number };

/** Lines that come within this time are written together. */
const GATHER_MS = 20;
/** Written at once; the rest waits until the reader has consumed them. */
const AT_ONCE = 64;

interface JournalStreamOptions {
  /** Number of earlier records to send first. */
  readonly last: number;
  /** Whether later records come, too. */
  readonly follows: boolean;
  readonly signal: AbortSignal;
}

/** Streams the journal until the reader disconnects or the signal aborts. */
function streamJournal(journal: SyncJournal, response: ServerResponse, options: JournalStreamOptions): void {
  const { last, follows, signal } = options;
  const until = follows ? Number.POSITIVE_INFINITY : journal.last;
  let place = Math.max(0, journal.last - (Number.isFinite(last) ? Math.max(0, last) : 0));
  let timer: NodeJS.Timeout | undefined;
  const write = (): void => {
    timer = undefined;
    if (response.writableNeedDrain) return;
    const { records, missed } = journal.after(place, Math.min(AT_ONCE, until - place));
    const lines: JournalLine[] = missed > 0 ? [{ missed }, ...records] : [...records];
    place += missed + records.length;
    if (lines.length > 0) response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    if (place >= until) end();
    else if (place < journal.last) gather();
  };
  const gather = (): void => {
    timer ??= setTimeout(write, GATHER_MS);
  };
  const unsubscribe = journal.subscribe(gather);
  const end = (): void => void response.end();
  response.on("drain", gather);
  response.on("close", () => {
    clearTimeout(timer);
    unsubscribe();
    signal.removeEventListener("abort", end);
  });
  signal.addEventListener("abort", end, { once: true });
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  // Tells the reader that it is connected, even if nothing happens.
  response.flushHeaders();
  write();
}
