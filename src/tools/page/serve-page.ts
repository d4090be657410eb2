/**
 * The page of `--inspect-bind-address` and of the inspect socket: it is read-only, and shows what a running daemon does, and why. It answers one question at a time, and
 * long ones yield to the daemon's own work.
 */
import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { type LiveDaemon, type LiveFamily, type LoadPage, statusReport } from "../../agent/daemon/inspect-report.ts";
import { causeWords, writtenWords } from "../../agent/daemon/sync-words.ts";
import { JSON_TYPE, reply, replyNotFound } from "../../agent/server/http/http-reply.ts";
import { type HttpHandler, pathOf, queryOf } from "../../agent/server/http/routes.ts";
import { Mutex } from "../../async/mutex.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { FlowReader } from "../../contract/tracked-connections.ts";
import { nodePortIPs } from "../../model/node-port-addresses.ts";
import { hostAddresses } from "../explain/host-addresses.ts";
import { type ErrorAnswer, QuestionError, SILENT_HEADER, type StateAnswer } from "./answers.ts";
import { type Asset, readAssets } from "./assets.ts";
import { guarded } from "./guard.ts";
import { heldQuestions } from "./held.ts";
import type { AddTraffic } from "./service-answer.ts";
import { isSortable, MAX_ROWS, MAX_WORDS, serviceTable, wordsOf } from "./service-table.ts";
import { TrackingHistory } from "./tracking-history.ts";

/** The page of this host's daemon. It samples connection tracking until the signal aborts. */
export const loadPage: LoadPage = async (daemon, signal) =>
  pageHandler(daemon, await readAssets(), { tracking: new TrackingHistory(daemon.conntrack, signal), signal });

/** What the page needs from the host. */
interface PageSources {
  /** A family as a node, with the host's addresses. */
  readonly viewOf?: (family: LiveFamily) => Promise<OfflineNode>;
  /** Reads the kernel's counters and connections. @default this host's */
  readonly addTraffic?: AddTraffic;
  /** Reads connection tracking. @default this host's */
  readonly readFlows?: FlowReader;
  /** When the process started. @default the start of this one */
  readonly startedMs?: number;
  /** @default how full connection tracking is is not known */
  readonly tracking?: TrackingHistory;
  /** Answers at once what is held. @default never */
  readonly signal?: AbortSignal;
}

/** How often the kernel is asked for counters at most, for all clients together: it may list 100,000 connections. */
const COUNT_EVERY_MS = 1_000;
/** Limit for waiting questions plus the current one. A page asks one or two at a time; one client may have 16 connections. */
const MAX_QUESTIONS = 12;

/** Serves files and answers questions. */
export function pageHandler(
  daemon: LiveDaemon,
  assets: ReadonlyMap<string, Asset>,
  {
    viewOf = (family) => nodeView(daemon, family),
    addTraffic,
    readFlows,
    startedMs = Math.round(performance.timeOrigin),
    tracking,
    signal: stop = new AbortController().signal,
  }: PageSources = {},
): HttpHandler {
  const turns = new Mutex();
  let countedMs = Number.NEGATIVE_INFINITY;
  const untilCounted = async (signal: AbortSignal): Promise<void> => {
    await sleep(Math.max(0, countedMs + COUNT_EVERY_MS - performance.now()), undefined, { signal });
    countedMs = performance.now();
  };
  const questions: Readonly<Record<string, (query: URLSearchParams, signal: AbortSignal) => Promise<unknown>>> = {
    "/api/front": async (_query, signal) => {
      const { frontAnswer } = await import("./front-answer.ts");
      return { ...(await frontAnswer(daemon, viewOf, signal)), tracked: tracking?.points ?? [] };
    },
    "/api/services": (query, signal) => tableAnswer(daemon, query, signal),
    "/api/service": async (query, signal) => {
      const { serviceAnswer } = await import("./service-answer.ts");
      const key = query.get("key") ?? "";
      served(
        query,
        daemon.families.find(({ state }) => state.services.has(key)),
      );
      const traffic = query.has("traffic")
        ? (addTraffic ?? (await import("../explain/traffic.ts")).withTraffic)
        : undefined;
      if (traffic !== undefined) await untilCounted(signal);
      return served(query, await serviceAnswer(daemon, key, viewOf, traffic));
    },
    "/api/yaml": async (query, signal) => {
      const { yamlAnswer } = await import("./yaml-answer.ts");
      return served(query, await yamlAnswer(daemon, query.get("key") ?? "", signal));
    },
    "/api/connections": async (query, signal) => {
      const words = wordsOf(query.get("search") ?? "").slice(0, MAX_WORDS);
      const { connectionsAnswer } = await import("./connections-answer.ts");
      await untilCounted(signal);
      return await connectionsAnswer(daemon, words, signal, readFlows);
    },
    "/api/trace": async (query, signal) => {
      const { traceAnswer } = await import("./trace-answer.ts");
      const text = (name: string) => query.get(name) ?? "";
      const question = { from: text("from"), to: text("to"), port: text("port"), protocol: text("protocol") || "tcp" };
      return await traceAnswer(daemon, { ...question, isVerbose: query.has("verbose") }, viewOf, signal);
    },
  };
  const answerState = stateHandler(daemon, startedMs, tracking, stop);
  const asking = new Set<ServerResponse>();
  /** Answers in turn, unless the client hangs up first. */
  async function answerInTurn(response: ServerResponse, question: (signal: AbortSignal) => Promise<unknown>) {
    const gone = new AbortController();
    try {
      if (asking.size >= MAX_QUESTIONS) throw new QuestionError("Too many requests are waiting for an answer.", 503);
      asking.add(response);
      response.once("close", () => {
        asking.delete(response);
        gone.abort();
      });
      const answer = await turns.run(() => question(gone.signal), gone.signal);
      reply(response, 200, JSON_TYPE, JSON.stringify(answer));
    } catch (error) {
      if (gone.signal.aborted) return;
      if (!(error instanceof QuestionError)) throw error;
      if (error.status === 503) response.setHeader("Retry-After", "1");
      reply(response, error.status, JSON_TYPE, JSON.stringify({ error: error.message } satisfies ErrorAnswer));
    }
  }
  return guarded(async (request, response) => {
    const path = pathOf(request);
    const asset = assets.get(path);
    const question = questions[path];
    if (asset !== undefined) reply(response, 200, asset.type, asset.bytes);
    else if (path === "/api/state") await answerState(request, response);
    else if (question === undefined) replyNotFound(response);
    else await answerInTurn(response, (signal) => question(queryOf(request), signal));
  });
}

/** While a question is held, the kernel is asked so often how full connection tracking is. */
const HELD_FRESH_MS = 10_000;

function stateHandler(
  daemon: LiveDaemon,
  startedMs: number,
  tracking: TrackingHistory | undefined,
  stop: AbortSignal,
): HttpHandler {
  const untilChanged = heldQuestions(daemon.journal, stop);
  return async (request, response) => {
    const query = queryOf(request);
    const known = request.headers["if-none-match"];
    // The last sync that the client knows, if it is from this process.
    const after = numberIn(query, "of", startedMs) === startedMs ? numberIn(query, "after", 0) : 0;
    const now = async (freshMs?: number): Promise<StateAnswer> => {
      const tracked = await tracking?.now(freshMs);
      const status = { ...statusReport(daemon), ...(tracked !== undefined && { connectionTracking: tracked }) };
      return stateAnswer(daemon, after, startedMs, status);
    };
    if (query.has("hold")) await untilChanged(async () => tagOf(await now(HELD_FRESH_MS)) !== known, request, response);
    if (response.destroyed) return;
    const answer = await now();
    const tag = tagOf(answer);
    const { silentMs } = answer.status;
    if (silentMs !== undefined) response.setHeader(SILENT_HEADER, silentMs);
    if (known === tag) response.writeHead(304, { ETag: tag }).end();
    else reply(response, 200, JSON_TYPE, JSON.stringify(answer), { ETag: tag });
  };
}

async function tableAnswer(daemon: LiveDaemon, query: URLSearchParams, signal: AbortSignal) {
  const words = wordsOf(query.get("search") ?? "");
  if (words.length > MAX_WORDS) throw new QuestionError(`Search for ${MAX_WORDS} words at most, not ${words.length}.`);
  const sort = query.get("sort") ?? "";
  if (!isSortable(sort))
    throw new QuestionError("Sort by name, type, addresses, pods or state; - before it: descending.");
  const question = {
    ...{ words, sort },
    namespace: query.get("namespace") ?? "",
    offset: numberIn(query, "offset", 0),
    limit: Math.min(MAX_ROWS, numberIn(query, "limit", 100)),
  };
  return await serviceTable(daemon, question, signal);
}

/** @throws QuestionError if there is nothing */
function served<Found>(query: URLSearchParams, found: Found | undefined): Found {
  if (found !== undefined) return found;
  throw new QuestionError(`This node serves no service port ${query.get("key") ?? ""}.`, 404);
}

/** Anything but a number counts as missing. */
function numberIn(query: URLSearchParams, name: string, fallback: number): number {
  const text = query.get(name) ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : fallback;
}

/** The most syncs in one answer. */
const MAX_SYNCS = 512;

/** @param startedMs of this process. */
function stateAnswer(daemon: LiveDaemon, after: number, startedMs: number, status: StateAnswer["status"]): StateAnswer {
  const { journal } = daemon;
  // Of a long history, the newest part is the useful one.
  const { records, missed } = journal.after(Math.max(after, journal.last - MAX_SYNCS));
  return {
    status,
    zone: daemon.zone() ?? null,
    isNodeEligible: daemon.verdict().isNodeEligible,
    problems: daemon.problems(),
    syncs: records.map((record) => ({
      ...record,
      words: { causes: record.causes.map(causeWords), written: writtenWords(record) },
    })),
    missedSyncs: missed,
    lastSync: journal.last,
    startedMs,
    nowMs: Date.now(),
    lately: journal.lately(),
  };
}

/** What time alone changes: the page counts it itself. */
const AGES: ReadonlySet<string> = new Set(["nowMs", "sinceMs", "silentMs", "uptimeSeconds", "lastSyncAgeMs"]);
/** What always changes a little: a step is a twentieth. */
const UNSTEADY: ReadonlySet<string> = new Set(["residentBytes", "entries", "invalid"]);

/** Changes whenever the answer would be seen to. Which syncs the client knows does not matter: it knows them all once it has the tag. */
function tagOf(answer: StateAnswer): string {
  const text = JSON.stringify({ ...answer, syncs: [], missedSyncs: 0 }, (name, value: unknown) => {
    if (AGES.has(name)) return undefined;
    return UNSTEADY.has(name) ? Math.round(20 * Math.log(Number(value) + 20)) : value;
  });
  return `"${createHash("sha256").update(text).digest("base64url")}"`;
}

/** If the host's addresses cannot be read, there are none. */
async function nodeView(daemon: LiveDaemon, family: LiveFamily): Promise<OfflineNode> {
  const own = await hostAddresses(family.family).catch(() => []);
  const { nodePortAddresses, detector, nodeIP, state } = family;
  return {
    family: family.family,
    name: daemon.node,
    zone: daemon.zone(),
    nodeIP,
    detector,
    nodePortAddresses,
    nodePortIPs: nodePortIPs(nodePortAddresses, own),
    hostAddresses: own,
    serviceCIDRs: family.serviceCIDRs(),
    state,
  };
}
