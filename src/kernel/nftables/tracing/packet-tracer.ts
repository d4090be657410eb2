/** Makes the kernel trace packets of one flow, and reports its trace messages. */
import { NETLINK_NETFILTER } from "../../netlink/constants.ts";
import { NetlinkError } from "../../netlink/errors.ts";
import { subscribe } from "../../netlink/subscription.ts";
import { fromNetlinkError } from "../netlink-errors.ts";
import { LAYOUTS } from "../netlink-values.ts";
import { NftError } from "../nftables.ts";
import { operationOfType } from "../wire/batch.ts";
import { NFNLGRP_NFTRACE } from "../wire/constants.ts";
import { type NftablesClient, openNftables } from "../wire/nftables-client.ts";
import { readTraceEvent, type TraceEvent } from "./trace-event.ts";
import { TRACE_TABLE, type TraceFilter, traceTableBatch } from "./trace-table.ts";

/** A hook (NF_INET_*) and a priority. */
export interface ChainHook {
  readonly hook: number;
  readonly priority: number;
}

/** A running trace. Disposing it removes the table. */
export interface PacketTracer extends AsyncDisposable {
  /** Resolves when the signal aborts. Rejects if the kernel's messages cannot be received any more. */
  readonly ended: Promise<void>;
  /** The ruleset's current generation. */
  generation(): Promise<number>;
  /** The base chains of a table, by name. */
  baseChains(family: number, table: string): Promise<ReadonlyMap<string, ChainHook>>;
  /** The handles of a chain's rules, in order. */
  handles(family: number, table: string, chain: string): Promise<readonly number[]>;
}

interface PacketTracerOptions {
  readonly onEvent: (event: TraceEvent) => void;
  /** Messages were lost because they were not read fast enough. */
  readonly onLost: () => void;
  readonly signal: AbortSignal;
}

/** Installs the table and starts listening. @throws NftError */
export async function openPacketTracer(
  filter: TraceFilter,
  { onEvent, onLost, signal }: PacketTracerOptions,
): Promise<PacketTracer> {
  const stop = new AbortController();
  const ended = subscribe({
    protocol: NETLINK_NETFILTER,
    groups: [NFNLGRP_NFTRACE],
    onMessage: (reply) => {
      const event = readTraceEvent(reply);
      if (event !== undefined) onEvent(event);
    },
    onOverrun: onLost,
    signal: AbortSignal.any([signal, stop.signal]),
  });
  // Callers see a failure in the promise; one during installation is thrown below.
  ended.catch(() => {});
  let client: NftablesClient | undefined;
  const close = async (): Promise<void> => {
    stop.abort();
    await client?.close();
    await ended.catch(() => {});
  };
  try {
    client = openNftables();
    await install(client, filter);
  } catch (error) {
    await close();
    throw fromNetlinkError(error);
  }
  return { ...reader(client), ended, [Symbol.asyncDispose]: close };
}

function reader(client: NftablesClient): Pick<PacketTracer, "generation" | "baseChains" | "handles"> {
  return {
    async generation() {
      return (await client.generation()).id ?? 0;
    },
    async baseChains(family, table) {
      const found = new Map<string, ChainHook>();
      for (const { name, hook } of await client.chainHeads(family, table)) {
        if (name === undefined || hook?.hooknum === undefined) continue;
        found.set(name, { hook: hook.hooknum, priority: hook.priority ?? 0 });
      }
      return found;
    },
    async handles(family, table, chain) {
      const heads = await client.ruleHeads(family, table, chain);
      return heads.flatMap(({ handle }) => handle ?? []);
    },
  };
}

async function install(client: NftablesClient, filter: TraceFilter): Promise<void> {
  let result = await client.commit(traceTableBatch(filter, true));
  // ENOENT for a rule: the kernel lacks the limit expression.
  if (!result.committed && result.errors.some((error) => error.code === "ENOENT" && kindOf(error) === "rule")) {
    result = await client.commit(traceTableBatch(filter, false));
  }
  if (!result.committed) throw await refusal(client, filter, result.errors);
}

/** Of the object whose change was rejected. */
function kindOf({ facts }: NetlinkError) {
  return operationOfType(facts.request?.type ?? 0)?.kind;
}

async function refusal(
  client: NftablesClient,
  { family }: TraceFilter,
  [first]: readonly NetlinkError[],
): Promise<Error> {
  if (first === undefined)
    return new NftError("failed", "nftables: the kernel refused the table for tracing", undefined);
  const tables = await client.tables(LAYOUTS[family].nfproto).catch((error: unknown) => {
    if (error instanceof NetlinkError) return [];
    throw error;
  });
  const other = tables.find(({ name }) => name === TRACE_TABLE);
  if (other !== undefined) {
    const owner = other.owner === undefined ? "" : ` (owned by process ${other.owner})`;
    return new NftError("exists", `the table ${family} ${TRACE_TABLE} already exists${owner}`, undefined);
  }
  if (kindOf(first) === "table" && (first.code === "EOPNOTSUPP" || first.code === "EINVAL")) {
    const message = "this kernel has no tables that are owned by a process: Linux 5.12 or later is needed";
    return new NftError("unsupported", message, undefined, { cause: first });
  }
  return fromNetlinkError(first);
}
