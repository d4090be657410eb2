/**
 * `/debug/`, only with `enableProfiling` (reference operation.md §9.2): profiles of the running program, and its verbosity.
 * The paths are upstream's; the profiles have Node's own formats, which Chrome's developer tools and VS Code open.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Session } from "node:inspector/promises";
import { pipeline } from "node:stream/promises";
import { systemClock } from "../../../async/clock.ts";
import { JSON_TYPE, reply, TEXT } from "../http/http-reply.ts";
import { type HttpHandler, queryOf } from "../http/routes.ts";

/** Upstream's default if `seconds` is missing or not a positive number. */
const DEFAULT_SECONDS = 30;
/** A profile is held in memory until it is sent. */
const MAX_SECONDS = 300;

const INDEX = `<html>
<head><title>/debug/pprof/</title></head>
<body>
<h1>/debug/pprof/</h1>
<ul>
<li><a href="profile?seconds=30">profile</a>: processor time of the main thread for that many seconds (.cpuprofile)</li>
<li><a href="allocs?seconds=30">allocs</a>: what is allocated in that many seconds (.heapprofile);
<a href="allocs?seconds=30&amp;live">allocs, live</a>: of that, what is still there at the end</li>
<li><a href="heap">heap</a>: everything on the heap (.heapsnapshot). The program stands still meanwhile, for seconds when the
heap is large, and needs twice the memory</li>
</ul>
<p>Open them with Chrome's developer tools or VS Code.</p>
</body>
</html>
`;

interface Recording {
  readonly extension: "cpuprofile" | "heapprofile";
  start(session: Session): Promise<unknown>;
  stop(session: Session): Promise<unknown>;
}

const CPU: Recording = {
  extension: "cpuprofile",
  async start(session) {
    await session.post("Profiler.enable");
    await session.post("Profiler.start");
  },
  stop: async (session) => (await session.post("Profiler.stop")).profile,
};

function allocations(areOnlyLive: boolean): Recording {
  const areAll = !areOnlyLive;
  return {
    extension: "heapprofile",
    start: (session) =>
      session.post("HeapProfiler.startSampling", {
        includeObjectsCollectedByMajorGC: areAll,
        includeObjectsCollectedByMinorGC: areAll,
      }),
    stop: async (session) => (await session.post("HeapProfiler.stopSampling")).profile,
  };
}

/** The routes, by path. Only one recording runs at a time. */
export function profilingPages(): Readonly<Record<string, HttpHandler>> {
  let isBusy = false;
  const alone = (what: string, handler: HttpHandler): HttpHandler => {
    return async (request, response) => {
      if (isBusy) {
        reply(response, 500, TEXT, `Could not enable ${what} profiling: another profile is being recorded\n`);
        return;
      }
      isBusy = true;
      try {
        await handler(request, response);
      } finally {
        isBusy = false;
      }
    };
  };
  return {
    "/debug/pprof": (_request, response) => {
      reply(response, 302, TEXT, "", { Location: "/debug/pprof/" });
    },
    "/debug/pprof/": (_request, response) => reply(response, 200, "text/html; charset=utf-8", INDEX),
    "/debug/pprof/*": (_request, response) => reply(response, 404, TEXT, "Unknown profile\n"),
    "/debug/pprof/profile": alone("CPU", (request, response) => record(CPU, request, response)),
    "/debug/pprof/allocs": alone("heap", (request, response) =>
      record(allocations(queryOf(request).has("live")), request, response),
    ),
    "/debug/pprof/heap": alone("heap", snapshot),
  };
}

/** How long to record; `undefined` if it exceeds the limit. */
function secondsOf(text: string | null): number | undefined {
  const seconds = Number(text);
  if (!Number.isInteger(seconds) || seconds <= 0) return DEFAULT_SECONDS;
  return seconds <= MAX_SECONDS ? seconds : undefined;
}

async function record(recording: Recording, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const seconds = secondsOf(queryOf(request).get("seconds"));
  if (seconds === undefined) {
    reply(response, 400, TEXT, `seconds must be at most ${MAX_SECONDS}\n`);
    return;
  }
  const inspector = await import("node:inspector/promises");
  const session = new inspector.Session();
  session.connect();
  try {
    await recording.start(session);
    // The profile is useless once the connection is gone.
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    await systemClock.sleep(seconds * 1000, gone.signal);
    const profile = await recording.stop(session);
    if (!response.destroyed) reply(response, 200, JSON_TYPE, JSON.stringify(profile), download(recording.extension));
  } finally {
    session.disconnect();
  }
}

async function snapshot(_request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { getHeapSnapshot } = await import("node:v8");
  response.writeHead(200, {
    "Content-Type": JSON_TYPE,
    "X-Content-Type-Options": "nosniff",
    ...download("heapsnapshot"),
  });
  // A reader that disconnects ends the answer; there is no one to tell.
  await pipeline(getHeapSnapshot(), response).catch(() => {});
}

function download(extension: string): Readonly<Record<string, string>> {
  return { "Content-Disposition": `attachment; filename="kube-proxy.${extension}"` };
}

const MAX_BODY_BYTES = 1024;
const MAX_LEVEL = 2 ** 31 - 1;

/** @returns the body, or `undefined` if it is too long to be valid. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    const bytes = Buffer.from(chunk);
    size += bytes.length;
    if (size > MAX_BODY_BYTES) return undefined;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString();
}

/** Makes the handler; serves only PUT, whose body is the new level. */
export function verbosityPage(setVerbosity: (level: number) => void): HttpHandler {
  return async (request, response) => {
    if (request.method !== "PUT") {
      reply(response, 406, TEXT, "unsupported http method\n");
      return;
    }
    const body = await readBody(request);
    const level = body !== undefined && /^\d+$/.test(body) ? Number(body) : Number.NaN;
    if (!(level <= MAX_LEVEL)) {
      const got = body === undefined ? "a body that is too long" : JSON.stringify(body);
      reply(
        response,
        400,
        TEXT,
        `cannot set klog.logging.verbosity: expected a number from 0 to ${MAX_LEVEL}, got ${got}\n`,
        {
          Connection: "close",
        },
      );
      return;
    }
    setVerbosity(level);
    reply(response, 200, TEXT, `successfully set klog.logging.verbosity to ${body}\n`);
  };
}

export const flagsIndex: HttpHandler = (_request, response) => {
  const page = '<html><body><h1>/debug/flags/</h1><ul><li><a href="/debug/flags/v">v</a></li></ul></body></html>\n';
  reply(response, 200, "text/html; charset=utf-8", page);
};
