/** Where the chains and rules of a traced packet are in the ruleset, asked of the kernel for those that it met. */

import { NetlinkError } from "../kernel/netlink/errors.ts";
import type { ChainHook, PacketTracer } from "../kernel/nftables/tracing/packet-tracer.ts";
import { NF_INET_HOOKS } from "../kernel/nftables/wire/constants.ts";
import type { ObservedPacket } from "../trace/live/observed.ts";
import type { RulePlaces } from "../trace/live/observed-way.ts";
import { HOOKS } from "../trace/netfilter/program.ts";
import { interfaceNames } from "./trace-kernel.ts";

/** Reads what the packet needs. Tables and chains that are gone are left out. */
export async function rulePlaces(tracer: PacketTracer, { visits }: ObservedPacket): Promise<RulePlaces> {
  const tables = new Map<string, ReadonlyMap<string, ChainHook>>();
  const handles = new Map<string, readonly number[]>();
  for (const { family, table, events } of visits) {
    const tableKey = `${family} ${table}`;
    if (!tables.has(tableKey)) tables.set(tableKey, await orNone(tracer.baseChains(family, table), new Map()));
    for (const { chain, handle } of events) {
      const key = `${tableKey} ${chain}`;
      if (handle !== undefined && !handles.has(key)) {
        handles.set(key, await orNone(tracer.handles(family, table, chain), []));
      }
    }
  }
  const names = await interfaceNames();
  return {
    hookOf(family, table, chain) {
      const found = tables.get(`${family} ${table}`)?.get(chain);
      const stage = HOOKS.find((name) => NF_INET_HOOKS[name] === found?.hook);
      return found === undefined || stage === undefined ? undefined : { stage, priority: found.priority };
    },
    indexOf(family, table, chain, handle) {
      const index = handles.get(`${family} ${table} ${chain}`)?.indexOf(handle) ?? -1;
      return index < 0 ? undefined : index;
    },
    interfaceName: (index) => names.get(index),
  };
}

async function orNone<T>(answer: Promise<T>, none: T): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof NetlinkError && error.code === "ENOENT") return none;
    throw error;
  }
}
