/** What a running daemon tells of itself to people: over its socket to commands, and to browsers as a page. */
import type { Clock } from "../async/clock.ts";
import type { KubeProxyConfig } from "../config/config.ts";
import type { Logger } from "../logging/logger.ts";
import type { ProblemMemory } from "../logging/problem-memory.ts";
import { identityLine, programIdentity } from "../program/program-identity.ts";
import type { ProxyHealth } from "../server/health/proxy-health.ts";
import type { ServerLimits } from "../server/http/connection-limits.ts";
import type { Backend } from "../sync/backend.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { Proxier } from "../sync/proxier.ts";
import type { LiveDaemon, LiveFamily, ServePage } from "./live-daemon.ts";
import type { NodeSetup } from "./node-setup.ts";

/** What only the builder of a proxier knows of its family. */
export type FamilyFacts = Pick<LiveFamily, "nodeIP" | "detector" | "nodePortAddresses">;

interface InspectionContext {
  /** Path of the socket; undefined: none. */
  readonly inspectSocket: string | undefined;
  /** Undefined: no page. */
  readonly servePage: ServePage | undefined;
  readonly problems: ProblemMemory | undefined;
  readonly config: KubeProxyConfig;
  readonly nodeName: string;
  readonly setup: NodeSetup;
  readonly proxiers: readonly {
    readonly proxier: Proxier;
    readonly backend: Backend;
    readonly facts: FamilyFacts;
  }[];
  readonly health: ProxyHealth;
  readonly journal: SyncJournal | undefined;
  readonly limits: ServerLimits;
  readonly clock: Clock;
  readonly log: Logger;
  readonly ended: AbortSignal;
}

/** Browsers open a few connections each. */
const PAGE_CONNECTIONS = 32;

/** Answers where that was asked for, until the end. Never rejects. */
export async function serveInspection(context: InspectionContext): Promise<void> {
  const { inspectSocket, servePage, journal, limits, clock, log, ended } = context;
  if (journal === undefined) return;
  const daemon = liveDaemon(context, journal);
  const socket = inspectSocket === undefined ? undefined : serveSocket(inspectSocket, daemon, context);
  const total = Math.min(PAGE_CONNECTIONS, limits.health.total);
  const pageLimits = { total, perPeer: Math.ceil(total / 2) };
  const page = servePage?.(daemon, { limits: pageLimits, log, clock, signal: ended });
  await Promise.all([socket, page?.catch((error: unknown) => log.error("Cannot serve the page", error))]);
}

async function serveSocket(path: string, daemon: LiveDaemon, { log, ended }: InspectionContext): Promise<void> {
  const { serveInspectSocket } = await import("./inspect-socket.ts");
  await serveInspectSocket(path, daemon, { log, signal: ended });
}

function liveDaemon(context: InspectionContext, journal: SyncJournal): LiveDaemon {
  const { config, nodeName, setup, proxiers, health, problems } = context;
  return {
    program: identityLine(programIdentity()),
    mode: config.mode,
    node: nodeName,
    zone: () => proxiers[0]?.proxier.zone,
    families: proxiers.map(({ proxier, backend, facts }) => ({
      family: proxier.family,
      state: proxier.state,
      get status() {
        return proxier.status;
      },
      serviceCIDRs: () => proxier.serviceCIDRs,
      openConnections: backend.openConnections?.bind(backend),
      ...facts,
    })),
    verdict: () => health.verdict(),
    journal,
    config,
    podCIDRs: setup.podCIDRs,
    limits: () => [...setup.unsupported, ...(problems?.limits ?? [])],
    problems: () => problems?.problems ?? [],
  };
}
