/** `kube-proxy trace --live`: what this node's kernel does with real packets of a flow, compared with the simulation. */
import { setTimeout as sleep } from "node:timers/promises";
import { backEndIn } from "../../kernel/iptables/command-errors.ts";
import { legacyTables } from "../../kernel/iptables/legacy-tables.ts";
import { undefinedIf } from "../../kernel/netlink/errors.ts";
import { isObject } from "../../kernel/nftables/json.ts";
import { NftError } from "../../kernel/nftables/nftables.ts";
import { type ChainHook, openPacketTracer, type PacketTracer } from "../../kernel/nftables/tracing/packet-tracer.ts";
import { TRACE_TABLE, type TraceFilter } from "../../kernel/nftables/tracing/trace-table.ts";
import { NF_INET_HOOKS } from "../../kernel/nftables/wire/constants.ts";
import { execProcess } from "../../kernel/process.ts";
import { localAddresses } from "../../kernel/route/addresses.ts";
import { devicesHere } from "../../kernel/route/devices.ts";
import { programOfDumps } from "../../trace/dump/program.ts";
import { nodeFacts } from "../../trace/facts.ts";
import { judge } from "../../trace/live/judge.ts";
import { type ObservedPacket, PacketAssembler } from "../../trace/live/observed.ts";
import type { RulePlaces } from "../../trace/live/observed-way.ts";
import { HOOKS } from "../../trace/netfilter/program.ts";
import { type LiveReport, liveData, liveText } from "../../trace/report/live-text.ts";
import { jsonText } from "../explain/safe-text.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, type Output, painted, UsageError } from "./output.ts";
import { kernelRules, needRoot } from "./trace-kernel.ts";
import { type PacketFlags, type ParsedTarget, trafficOf } from "./trace-packet.ts";
import type { TracedRules } from "./trace-rules.ts";

export interface LiveOptions {
  readonly target: ParsedTarget;
  readonly packet: PacketFlags;
  readonly count: number;
  readonly timeoutSeconds: number;
  readonly form: string;
}

/** How often to look for packets that the kernel no longer reports on. */
const LOOK_MS = 50;
/** How often to read rules that keep changing. */
const READ_ATTEMPTS = 5;

/** Runs `trace --live`. @param signal ends it early. @returns the exit status. @throws UsageError */
export async function liveTrace(options: LiveOptions, output: Output, signal: AbortSignal): Promise<number> {
  needRoot("tracing packets in this node's kernel");
  const { target, form, count } = options;
  const own = new Set<string>(await localAddresses(target.family));
  const filter = trafficOf(options.packet, target, (address) => own.has(address));
  const waiting = new PacketQueue();
  const { tracer, note } = await opened(filter, waiting, signal);
  await using _ = tracer;
  const what = `${target.protocol} packets to ${target.address}${target.port === undefined ? "" : ` port ${target.port}`}`;
  output.err(`Waiting up to ${options.timeoutSeconds} s for ${what}; Ctrl-C ends it.\n`);
  const reader = rulesReader(tracer, target);
  await reader.refuseLegacy();
  const reports: LiveReport[] = [];
  for await (const packet of waiting.take(count, options.timeoutSeconds * 1_000, tracer.ended, signal)) {
    const report = await reader.report(packet, note());
    if (report === undefined) continue;
    reports.push(report);
    if (form === "text") {
      output.out(`${reports.length === 1 ? "" : "\n"}${painted(liveText(report), output.terminal)}`);
    }
  }
  if (form === "json") output.out(jsonText({ packets: reports.map(liveData) }));
  if (reports.length === 0) {
    output.err(
      `No such packet arrived. Does it pass this node, and are address, port and --from as its first hook sees them?\n`,
    );
  }
  const isAsSimulated = ({ comparison }: LiveReport): boolean =>
    comparison === undefined || (comparison.hasSameSteps && comparison.hasSameEnd);
  return reports.length > 0 && reports.every(isAsSimulated) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/** Queues packets as they end. */
class PacketQueue {
  readonly assembler = new PacketAssembler((packet) => this.#packets.push(packet));
  readonly #packets: ObservedPacket[] = [];

  /** Yields up to `count` packets. @param ended rejects when no more can arrive. */
  async *take(
    count: number,
    limitMs: number,
    ended: Promise<void>,
    signal: AbortSignal,
  ): AsyncGenerator<ObservedPacket> {
    const endMs = performance.now() + limitMs;
    for (let taken = 0; taken < count; ) {
      const packet = this.#packets.shift();
      if (packet !== undefined) {
        taken += 1;
        yield packet;
        continue;
      }
      // Waits for a packet that is on its way.
      const isLate = performance.now() > endMs && this.assembler.openPackets === 0;
      if (signal.aborted || isLate) return;
      await Promise.race([sleep(LOOK_MS), ended]);
      this.assembler.giveUp(performance.now());
    }
  }
}

async function opened(filter: TraceFilter, { assembler }: PacketQueue, signal: AbortSignal) {
  let isLost = false;
  try {
    const tracer = await openPacketTracer(filter, {
      onEvent: (event) => assembler.add(event, performance.now()),
      onLost: () => {
        isLost = true;
      },
      signal,
    });
    const lost = "the kernel sent more messages than could be read: steps may be missing";
    return { tracer, note: () => (isLost ? [lost] : []) };
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    const hint = error.code === "exists" ? "Another trace --live seems to run: one at a time." : undefined;
    throw new UsageError(`packets cannot be traced: ${error.message}`, hint);
  }
}

/** Reads the generation of rules that packets met, and reads again if it has changed. */
function rulesReader(tracer: PacketTracer, { family, protocol }: ParsedTarget) {
  let legacyNote: readonly string[] = [];
  let known: { readonly generation: number; readonly rules: TracedRules } | undefined;
  const current = async (): Promise<TracedRules> => {
    for (let attempt = 1; ; attempt += 1) {
      const generation = await tracer.generation();
      if (known?.generation === generation) return known.rules;
      const rules = await kernelRules(family, []);
      const isUnchanged = (await tracer.generation()) === generation;
      if (isUnchanged) known = { generation, rules: withoutOwnTable(rules) };
      else if (attempt === READ_ATTEMPTS) {
        const note = "the rules changed each time they were read: those shown may be slightly newer";
        return { ...withoutOwnTable(rules), notes: [...rules.notes, note] };
      }
    }
  };
  return {
    /** The legacy variant of iptables reports nothing to nf_tables. @throws UsageError if the rules are its own */
    async refuseLegacy(): Promise<void> {
      const tables = await legacyTables(family);
      if (tables.length === 0) return;
      const { dumps } = await current();
      const { stdout } = await execProcess("iptables", ["--version"], { timeoutMs: 10_000 });
      const hasOwn = dumps.some((dump) => dump.kind === "iptables" && dump.text.includes("\n-A "));
      if (backEndIn(stdout) !== "nft" && hasOwn)
        throw new UsageError(
          "the rules of iptables-legacy cannot be traced: the kernel reports them only in its log",
          "Without --live, trace walks them without sending anything.",
        );
      legacyNote = [
        `iptables-legacy has tables here as well (${tables.join(", ")}), about which the kernel reports nothing`,
      ];
    },
    async report(packet: ObservedPacket, notes: readonly string[]): Promise<LiveReport | undefined> {
      const rules = await current();
      const facts = nodeFacts({ addresses: rules.addresses, routes: rules.routes ?? [] });
      // This packet may already have left its own traces in lists and sets.
      const dumps = rules.dumps.filter(({ kind }) => kind !== "recent");
      const { program } = programOfDumps(dumps, { family, facts, knowsClients: false, knowsDynamicSets: false });
      const places = await rulePlaces(tracer, packet);
      const judged = judge(packet, { family, protocol }, { program, facts, places });
      return judged && { ...judged, rules: rules.name, notes: [...rules.notes, ...legacyNote, ...notes] };
    },
  };
}

function withoutOwnTable(rules: TracedRules): TracedRules {
  const isOwn = (object: unknown): boolean =>
    isObject(object) &&
    Object.values(object).some((body) => isObject(body) && [body.table, body.name].includes(TRACE_TABLE));
  const dumps = rules.dumps.map((dump) =>
    dump.kind === "nftables" ? { ...dump, objects: dump.objects.filter((object) => !isOwn(object)) } : dump,
  );
  return { ...rules, dumps };
}

/** Reads the places of the rules that the packet met. Leaves out tables and chains that are gone. */
async function rulePlaces(tracer: PacketTracer, { visits }: ObservedPacket): Promise<RulePlaces> {
  const tables = new Map<string, ReadonlyMap<string, ChainHook>>();
  const handles = new Map<string, readonly number[]>();
  const ifGone = undefinedIf("ENOENT");
  for (const { family, table, events } of visits) {
    const tableKey = `${family} ${table}`;
    if (!tables.has(tableKey))
      tables.set(tableKey, (await tracer.baseChains(family, table).catch(ifGone)) ?? new Map());
    for (const { chain, handle } of events) {
      const key = `${tableKey} ${chain}`;
      if (handle !== undefined && !handles.has(key)) {
        handles.set(key, (await tracer.handles(family, table, chain).catch(ifGone)) ?? []);
      }
    }
  }
  const names = new Map((await devicesHere()).map(({ index, name }) => [index, name]));
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
