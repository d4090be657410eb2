/** The answers of the page's server, as both sides know them. */

import type { StatusReport } from "../daemon/inspect-report.ts";
import type { CauseWords } from "../daemon/sync-words.ts";
import type { PortExplanation } from "../explain/explanation.ts";
import type { Picture } from "../explain/picture.ts";
import type { LoggedProblem } from "../logging/problem-memory.ts";
import type { SyncRecord } from "../sync/journal/sync-record.ts";

/** A sync with what is said of it. */
export interface ToldSync extends SyncRecord {
  readonly words: { readonly causes: readonly CauseWords[]; readonly written: string };
}

/** `/api/state` */
export interface StateAnswer {
  readonly status: StatusReport;
  readonly zone: string | null;
  readonly isNodeEligible: boolean;
  readonly problems: readonly LoggedProblem[];
  /** Syncs since the number that was asked for, the oldest first. */
  readonly syncs: readonly ToldSync[];
  readonly missedSyncs: number;
  /** To ask for those after it. */
  readonly lastSync: number;
  /** When the process began, in milliseconds since 1970: of another one, the syncs have other numbers. */
  readonly startedMs: number;
}

/** `/api/services` */
export interface ServiceTable {
  readonly total: number;
  readonly matching: number;
  readonly offset: number;
  /** Of all, in order. */
  readonly namespaces: readonly string[];
  readonly rows: readonly ServiceRow[];
}

export interface ServiceRow {
  readonly key: string;
  /** `namespace/name` */
  readonly service: string;
  readonly portName: string;
  readonly protocol: string;
  readonly families: readonly ServiceFamilyRow[];
  readonly trouble: string | null;
}

export interface ServiceFamilyRow {
  readonly family: string;
  readonly clusterIP: string;
  /** External and load-balancer addresses with the port. */
  readonly others: readonly string[];
  /** 0 when there is none. */
  readonly nodePort: number;
  readonly endpoints: number;
  readonly used: number;
  readonly trouble: string | null;
}

/** `/api/service` */
export interface ServiceAnswer {
  readonly key: string;
  readonly families: readonly { readonly explanation: PortExplanation; readonly picture: Picture }[];
}

/** `/api/connections` */
export interface ConnectionsAnswer {
  readonly total: number;
  readonly matching: number;
  /** Of those that match, as many as are shown. */
  readonly flows: TextTable;
  /** The service ports with most connections. */
  readonly counts: TextTable;
  /** What is not known, and what numbers mean: sentences. */
  readonly notes: readonly string[];
  /** To ask again after it. */
  readonly pauseMs: number;
}

export interface TextTable {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** `/api/trace` */
export interface TraceAnswer {
  readonly packet: string;
  readonly rules: string;
  readonly notes: readonly string[];
  readonly outcomes: readonly {
    readonly odds: string;
    readonly text: string;
    readonly assumptions: readonly string[];
  }[];
  readonly steps: TraceSteps;
}

export interface TraceSteps {
  readonly steps: readonly TraceStep[];
  /** What becomes of the packet; null where the way forks. */
  readonly fate: string | null;
  readonly isGood: boolean;
  /** What the fork depends on: chance, or what is not known. */
  readonly question: string | null;
  readonly branches: readonly { readonly odds: string | null; readonly label: string; readonly way: TraceSteps }[];
}

export interface TraceStep {
  readonly kind: "stage" | "chain" | "match" | "no-match" | "note";
  readonly text: string;
  /** What the rule did, or why it did not match. */
  readonly said: string | null;
}

/** Every error, with what to do. */
export interface ErrorAnswer {
  readonly error: string;
}
