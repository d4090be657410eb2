/** What one sync was for, what it wrote, and how long each part of it took. Times are milliseconds. */
import type { ObjectEvent } from "../../cluster/object-source.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { SyncFailure } from "../backend.ts";

/** An object of the cluster that came, changed or went. */
interface ObjectCause {
  readonly kind: "object";
  readonly object: "Service" | "EndpointSlice";
  readonly change: ObjectEvent<unknown>["kind"];
  readonly namespace: string;
  readonly name: string;
  /** The Service that it is, or that it belongs to, without its namespace. */
  readonly service: string;
}

/** Rules of ours that another program destroyed. */
interface RepairCause {
  readonly kind: "repair";
  /** How many service ports are concerned; null: everything is written again. */
  readonly servicePorts: number | null;
  /** The program, where it is known. */
  readonly by: string | null;
}

/** Causes that concern everything: the first sync, a failure before, the periodic full sync, a fact about the node or the cluster. */
export interface WholeCause {
  readonly kind: "start" | "retry" | "periodic" | "zone" | "node-addresses" | "service-cidrs" | "requested";
}

export type SyncCause = ObjectCause | RepairCause | WholeCause;

export interface SyncRecord {
  /** Counts all syncs of the process, from 1. */
  readonly number: number;
  readonly family: IpFamily;
  /** Unix time of its end. */
  readonly endedMs: number;
  readonly isFullSync: boolean;
  /** The first of them. What comes while a sync begins may be part of it and named by the next. */
  readonly causes: readonly SyncCause[];
  readonly furtherCauses: number;
  /** How many service ports differ. */
  readonly servicePorts: number;
  readonly stages: SyncStages;
  /** Numbers by what was done, in the words of the mode; null where the mode does not say. */
  readonly written: Readonly<Record<string, number>> | null;
  readonly result: "done" | "refused" | "failed";
  /** The first of what the kernel refused, with the reasons. */
  readonly failures: readonly SyncFailure[];
  readonly furtherFailures: number;
}

interface SyncStages {
  /** From the first cause to the begin. */
  readonly waiting: number;
  /** Until it is known what the changes mean for services and endpoints. */
  readonly model: number;
  /** Rules planned, compared and written. */
  readonly rules: number;
  /** The part of `rules` that was spent waiting for the kernel or its tools; null where the mode does not say. */
  readonly kernel: number | null;
  /** Health-check ports and stale flows. */
  readonly after: number;
}
