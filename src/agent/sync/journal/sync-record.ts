/** Why one sync ran, what it wrote and how long each part of it took. Times are milliseconds. */

import type { SyncFailure } from "../../../contract/backend.ts";
import type { ObjectEvent } from "../../../model/object-source.ts";
import type { IpFamily } from "../../../net/ip.ts";

/** A cluster object that was added, changed or deleted. */
interface ObjectCause {
  readonly kind: "object";
  readonly object: "Service" | "EndpointSlice";
  readonly change: ObjectEvent<unknown>["kind"];
  readonly namespace: string;
  readonly name: string;
  /** The Service that the object is, or belongs to, without its namespace. */
  readonly service: string;
}

/** Rules of ours that another program destroyed. */
interface RepairCause {
  readonly kind: "repair";
  /** Number of affected service ports; null: everything is rewritten. */
  readonly servicePorts: number | null;
  /** The program, if known. */
  readonly by: string | null;
}

/** Causes that affect everything: the first sync, an earlier failure, the periodic full sync, a fact about the node or the cluster. */
export interface WholeCause {
  readonly kind:
    | "start"
    | "retry"
    | "periodic"
    | "zone"
    | "node-addresses"
    | "service-cidrs"
    | "left-endpoints"
    | "requested";
}

export type SyncCause = ObjectCause | RepairCause | WholeCause;

export interface SyncRecord {
  /** Counts all syncs of the process, from 1. */
  readonly number: number;
  readonly family: IpFamily;
  /** Unix time of its end. */
  readonly endedMs: number;
  readonly isFullSync: boolean;
  /** The first causes. A cause that arrives while a sync begins may be handled by it but listed with the next. */
  readonly causes: readonly SyncCause[];
  readonly furtherCauses: number;
  /** How many service ports differ. */
  readonly servicePorts: number;
  readonly stages: {
    /** From the first cause to the start of the sync. */
    readonly waiting: number;
    /** Working out what the changes mean for Services and endpoints. */
    readonly model: number;
    /** Planning, comparing and writing rules. */
    readonly rules: number;
    /** The part of `rules` spent waiting for the kernel or its tools; null if the mode does not say. */
    readonly kernel: number | null;
    /** Health-check ports and stale flows. */
    readonly after: number;
  };
  /** Operation counts by the mode's names for the operations; null if the mode does not say. */
  readonly written: Readonly<Record<string, number>> | null;
  readonly result: "done" | "refused" | "failed";
  /** The first parts that the kernel rejected, with the reasons. */
  readonly failures: readonly SyncFailure[];
  readonly furtherFailures: number;
}

/** Whether a sync put back what others had changed. */
export const isRepair = ({ causes }: Pick<SyncRecord, "causes">): boolean =>
  causes.some(({ kind }) => kind === "repair");
