/** How a running daemon is: what the page asks for again and again. */
import { type LiveDaemon, type LiveFamily, statusReport } from "../daemon/inspect-report.ts";
import { causeWords, writtenWords } from "../daemon/sync-words.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import { localAddresses } from "../kernel/route/addresses.ts";
import { nodePortIPs } from "../model/node-port-addresses.ts";
import type { StateAnswer } from "./answers.ts";

/** Syncs of one answer. */
const MAX_SYNCS = 200;

/** What a reader knows. */
interface KnownSyncs {
  /** The last sync. */
  readonly after: number;
  /** Of which process, as it said; undefined: of this one. */
  readonly of: number | undefined;
}

/** @param startedMs of this process. */
export function stateAnswer(daemon: LiveDaemon, known: KnownSyncs, startedMs: number): StateAnswer {
  const { journal } = daemon;
  const after = (known.of ?? startedMs) === startedMs ? known.after : 0;
  // Of what has been for long, the newest is of use.
  const { records, missed } = journal.after(Math.max(after, journal.last - MAX_SYNCS));
  return {
    status: statusReport(daemon),
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
  };
}

/** Changes whenever {@link stateAnswer} would say something else, but for ages. */
export function stateTag(daemon: LiveDaemon, after: number, startedMs: number): string {
  const { isHealthy, isNodeEligible, failures } = daemon.verdict();
  const problems = daemon.problems();
  const busy = daemon.families.map(({ status: { isFailing, isInitialised } }) => [isFailing, isInitialised]);
  const parts = [startedMs, after, daemon.journal.last, isHealthy, isNodeEligible, failures.length, problems.length];
  return `"${[...parts, problems[0]?.lastMs ?? 0, ...busy.flat(), daemon.limits().length].join("-")}"`;
}

/** @param readAddresses of the host; those that cannot be read are none. */
export async function nodeView(
  daemon: LiveDaemon,
  family: LiveFamily,
  readAddresses = localAddresses,
): Promise<OfflineNode> {
  const own = await readAddresses(family.family).catch(() => []);
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
