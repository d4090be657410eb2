/** The answers of the page's server, shared by server and client. */

import type { StatusReport } from "../../agent/daemon/inspect-report.ts";
import type { CauseWords } from "../../agent/daemon/sync-words.ts";
import type { SyncJournal } from "../../agent/sync/journal/sync-journal.ts";
import type { SyncRecord } from "../../agent/sync/journal/sync-record.ts";
import type { LoggedProblem } from "../../logging/problem-memory.ts";
import type { PortExplanation } from "../explain/explanation.ts";
import type { NameList } from "./named-words.ts";

/** A sync, with its description in words. */
export interface ToldSync extends SyncRecord {
  readonly words: { readonly causes: readonly CauseWords[]; readonly written: string };
}

/** `/api/state` */
export interface StateAnswer {
  readonly status: StatusReport;
  readonly zone: string | null;
  readonly isNodeEligible: boolean;
  readonly problems: readonly LoggedProblem[];
  /** Syncs after the requested number, oldest first. */
  readonly syncs: readonly ToldSync[];
  readonly missedSyncs: number;
  /** The number of the last sync, for the next request. */
  readonly lastSync: number;
  /** When the process started, in milliseconds since 1970: another process numbers its syncs from 1. */
  readonly startedMs: number;
  /** The daemon's time of this answer. */
  readonly nowMs: number;
  /** Repairs and refusals. */
  readonly lately: ReturnType<SyncJournal["lately"]>;
}

/** Sent with every answer about the state, also an unchanged one: how long the API server has been silent. */
export const SILENT_HEADER = "x-api-server-silent-ms";

/** With `hold` in its query, the question for a state that the page knows is answered once it changes, at the latest after this time. */
export const HELD_MS = 30_000;

/** `/api/front` */
export interface FrontAnswer {
  /** How many Services there are, get no answer at a port, and an answer only from some clients. */
  readonly total: number;
  readonly silent: number;
  readonly partly: number;
  /** The first service ports that are not answered, gravest first. */
  readonly wrong: readonly WrongService[];
  /** How many there are. */
  readonly wrongPorts: number;
  /** Each Service with its gravest service port: 0 answered, 1 for some clients, 2 for none. Gravest first. */
  readonly squares: readonly (readonly [name: string, key: string, grade: 0 | 1 | 2])[];
  /** Entries of connection tracking over the kept time: Unix milliseconds, the most until the next. */
  readonly tracked: readonly (readonly [sinceMs: number, entries: number])[];
  /** How long to wait before the next request. */
  readonly pauseMs: number;
}

export interface WrongService {
  readonly key: string;
  readonly name: string;
  readonly isSilent: boolean;
  /** In the words of `explain`. */
  readonly why: string;
  /** The names in them. */
  readonly names: NameList;
}

/** `/api/services` */
export interface ServiceTable {
  readonly total: number;
  readonly matching: number;
  readonly offset: number;
  /** All namespaces, sorted. */
  readonly namespaces: readonly string[];
  readonly rows: readonly ServiceRow[];
}

export interface ServiceRow {
  readonly key: string;
  /** `namespace/name` */
  readonly service: string;
  readonly portName: string;
  readonly protocol: string;
  readonly type: string;
  readonly families: readonly ServiceFamilyRow[];
  /** The different weights of its endpoints; empty if they are equal. */
  readonly weights: readonly number[];
  readonly trouble: string | null;
}

export interface ServiceFamilyRow {
  readonly family: string;
  readonly clusterIP: string;
  /** External and load-balancer addresses with the port. */
  readonly others: readonly string[];
  /** 0 if there is none. */
  readonly nodePort: number;
  readonly endpoints: number;
  /** null: no EndpointSlice tells of them. */
  readonly ready: number | null;
}

/** `/api/service` */
export interface ServiceAnswer {
  readonly key: string;
  readonly families: readonly {
    readonly explanation: PortExplanation;
    /** Only with counts, and if connections could be read. Most connections first. */
    readonly talks?: readonly Talk[];
  }[];
}

/** `/api/yaml`: a Service and its EndpointSlices as manifests. */
export interface YamlAnswer {
  readonly yaml: string;
}

/** Open connections. Pods and endpoints (`address:port`; empty: none is known) beyond the busiest are {@link OTHERS}. */
export type Talk = readonly [client: string, endpoint: string, open: number];
export const OTHERS = "all others";

/** `/api/connections` */
export interface ConnectionsAnswer {
  readonly total: number;
  readonly matching: number;
  /** The first of those that match. */
  readonly flows: TextTable;
  /** The service ports with the most connections. */
  readonly counts: TextTable;
  /** Services and pods in both. */
  readonly names: NameList;
  /** Sentences about what is not known, and what the numbers mean. */
  readonly notes: readonly string[];
  /** How long to wait before the next request. */
  readonly pauseMs: number;
}

export interface TextTable {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** `/api/trace` */
export interface TraceAnswer {
  readonly packet: string;
  readonly source: string;
  readonly destination: string;
  readonly owner: string;
  readonly rules: string;
  readonly notes: readonly string[];
  /** In the sentences: who was named, and whose the destination is. */
  readonly names: NameList;
  readonly outcomes: readonly {
    readonly odds: string;
    readonly text: string;
    readonly assumptions: readonly string[];
  }[];
  readonly steps: TraceSteps;
}

export interface TraceSteps {
  readonly steps: readonly TraceStep[];
  /** The fate of the packet; null if the path forks. */
  readonly fate: string | null;
  readonly isGood: boolean;
  /** What the fork depends on: chance, or an unknown fact. */
  readonly question: string | null;
  readonly branches: readonly { readonly odds: string | null; readonly label: string; readonly way: TraceSteps }[];
}

export interface TraceStep {
  readonly kind: "stage" | "chain" | "match" | "no-match" | "note";
  readonly text: string;
  /** What the rule did, or why it did not match. */
  readonly said: string | null;
}

/** A question without an answer; the message says what to do. */
export class QuestionError extends Error {
  override readonly name = "QuestionError";
  readonly status: number;
  constructor(message: string, status = 400) {
    super(message);
    this.status = status;
  }
}

/** The body of every error, with what to do about it. */
export interface ErrorAnswer {
  readonly error: string;
}
