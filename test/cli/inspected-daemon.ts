/** A daemon in this process that serves the examples on its inspect socket. */
import type { TestContext } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import type { InspectedDaemon } from "../../src/agent/daemon/inspect-report.ts";
import { serveInspectSocket } from "../../src/agent/daemon/inspect-socket.ts";
import { SyncJournal } from "../../src/agent/sync/journal/sync-journal.ts";
import { SYNCED } from "../../src/agent/sync/testing/synced-status.ts";
import type { LedConnections } from "../../src/contract/backend.ts";
import { offlineState } from "../../src/contract/inspect/offline-state.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import type { NodeLimit } from "../../src/logging/problem-memory.ts";
import { examplesAsJson } from "./run-command.ts";

const STATUS = { ...SYNCED, remarks: ["the mode says this of itself"] };

/** Starts a daemon that answers at this path until the test ends or `end` is called. */
export function daemonAt(
  t: Pick<TestContext, "after">,
  path: string,
  failures: { subject: string; reason: string }[] = [],
  limits: readonly NodeLimit[] = [],
  openConnections?: (key: string) => ReadonlyMap<string, number>,
  led?: LedConnections,
  more: Partial<InspectedDaemon> = {},
) {
  const objects = projectObjects([JSON.parse(examplesAsJson())]);
  const options = { family: "IPv4", nodeName: "node-a", allowExternalIPs: true, log: silentLogger } as const;
  const { state } = offlineState(objects, options);
  const stop = new AbortController();
  const daemon = {
    program: "kube-proxy-ts 1.2.3",
    mode: "nftables",
    node: "node-a",
    zone: () => "zone-1",
    families: [
      {
        family: "IPv4",
        state,
        status: STATUS,
        backend: { ...(openConnections && { openConnections }), ...(led && { led }) },
      },
    ],
    verdict: () => ({
      nowMs: 5_000,
      isHealthy: true,
      isNodeEligible: true,
      isReached: true,
      families: [{ family: "IPv4" as const, lastUpdatedMs: 3_000, syncedAgoMs: 2_000, isHealthy: true, remarks: [] }],
      degraded: [],
      failures,
    }),
    journal: new SyncJournal(),
    limits: () => limits,
    ...more,
  };
  const closed = serveInspectSocket(path, daemon, { log: silentLogger, signal: stop.signal });
  const end = async () => {
    stop.abort();
    await closed;
  };
  t.after(end);
  return { end, journal: daemon.journal, state };
}
