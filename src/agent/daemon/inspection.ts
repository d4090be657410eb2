/** How a running daemon reports to people: over its socket to commands, and to browsers as a page. */

import { sharedReading } from "../../async/shared-reading.ts";
import type { Backend } from "../../contract/backend.ts";
import type { ConntrackTable } from "../../kernel/conntrack/conntrack.ts";
import { joinHostPort } from "../../net/ip.ts";
import { identityLine, programIdentity } from "../../program/program-identity.ts";
import { answeringAt, type HttpEndpointOptions, startHttpEndpoint } from "../server/http/http-endpoint.ts";
import type { HttpHandler } from "../server/http/routes.ts";
import type { SyncJournal } from "../sync/journal/sync-journal.ts";
import type { Proxier } from "../sync/proxier.ts";
import type { Daemon } from "./daemon.ts";
import type { LiveDaemon, LiveFamily } from "./inspect-report.ts";
import type { serveInspectSocket } from "./inspect-socket.ts";
import type { NodeSetup } from "./node-setup.ts";

/** What only the builder of a proxier knows about its family. */
export type FamilyFacts = Pick<LiveFamily, "nodeIP" | "detector" | "nodePortAddresses">;

/** A family in service. */
export interface FamilyProxier {
  readonly proxier: Proxier;
  readonly backend: Backend;
  readonly facts: FamilyFacts;
}

/** Browsers open a few connections each. */
const PAGE_CONNECTIONS = 32;

/** Serves what was asked for, until the program ends. Never rejects. */
export async function serveInspection(
  daemon: Daemon,
  setup: NodeSetup,
  proxiers: readonly FamilyProxier[],
  conntrack: ConntrackTable,
): Promise<void> {
  const { options, journal, limits, clock, log, ended: signal } = daemon;
  if (journal === undefined) return;
  const live = liveDaemon(daemon, journal, setup, proxiers, conntrack);
  const total = Math.min(PAGE_CONNECTIONS, limits.health.total);
  const pageLimits = { total, perPeer: Math.ceil(total / 2) };
  const page = sharedReading(() => options.loadPage(live, signal), Number.POSITIVE_INFINITY, clock);
  const { inspectSocket, inspectBindAddress: address } = options;
  const serving = address === "" ? undefined : servePage(address, page, { limits: pageLimits, log, clock, signal });
  await Promise.all([
    inspectSocket === "" ? undefined : serveSocket(inspectSocket, live, { log, signal, page }),
    serving?.catch((error: unknown) => log.error("Cannot serve the page", error)),
  ]);
}

/** Serves the page at `IP:port`. Resolves once the signal has aborted and everything is closed. */
async function servePage(
  address: string,
  page: () => Promise<HttpHandler>,
  context: Pick<HttpEndpointOptions, "limits" | "log" | "clock" | "signal">,
): Promise<void> {
  const { log } = context;
  const endpoint = startHttpEndpoint({
    address,
    handler: await page(),
    ...context,
    isBindHardFail: false,
    onListenFailure: (error) =>
      log.error("Cannot serve the page; it will be tried again", error, { address, cannot: answeringAt(address) }),
    onHardFail() {},
  });
  const bound = await endpoint.listening;
  if (bound !== undefined) {
    const host = bound.address === "::" || bound.address === "0.0.0.0" ? "localhost" : bound.address;
    log.info("Serving the page", { url: `http://${joinHostPort(host, bound.port)}/` });
  }
  await endpoint.closed;
}

const serveSocket: typeof serveInspectSocket = async (...inspected) =>
  (await import("./inspect-socket.ts")).serveInspectSocket(...inspected);

function liveDaemon(
  { options: { config, problems, isModeSet }, nodeName, health }: Daemon,
  journal: SyncJournal,
  setup: NodeSetup,
  proxiers: readonly FamilyProxier[],
  conntrack: ConntrackTable,
): LiveDaemon {
  return {
    program: identityLine(programIdentity()),
    mode: config.mode,
    isModeSet,
    node: nodeName,
    zone: () => proxiers[0]?.proxier.zone,
    families: proxiers.map(({ proxier, backend, facts }) => ({
      family: proxier.family,
      state: proxier.state,
      get status() {
        return proxier.status;
      },
      serviceCIDRs: () => proxier.serviceCIDRs,
      backend,
      ...facts,
    })),
    verdict: () => health.verdict(),
    journal,
    conntrack,
    config,
    podCIDRs: setup.podCIDRs,
    limits: () => [...setup.unsupported, ...(problems?.limits ?? [])],
    problems: () => problems?.problems ?? [],
  };
}
