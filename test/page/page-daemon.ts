/** A page over a cluster that a test gives, as a daemon would serve it, but without a kernel and in this process. */
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { projectObjects } from "../../src/agent/cluster/manifests/read-manifests.ts";
import type { LiveDaemon } from "../../src/agent/daemon/inspect-report.ts";
import { startHttpEndpoint } from "../../src/agent/server/http/http-endpoint.ts";
import { HEALTHY } from "../../src/agent/server/testing/healthy-verdict.ts";
import { SyncJournal } from "../../src/agent/sync/journal/sync-journal.ts";
import type { SyncRecord } from "../../src/agent/sync/journal/sync-record.ts";
import { SYNCED } from "../../src/agent/sync/testing/synced-status.ts";
import { systemClock } from "../../src/async/clock.ts";
import { offlineNode } from "../../src/contract/inspect/offline-node.ts";
import type { FlowReader } from "../../src/contract/tracked-connections.ts";
import { NO_CONNTRACK, type TrackedFlow } from "../../src/kernel/conntrack/conntrack.ts";
import { checkedSettings } from "../../src/lib/plan-settings.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import type { LoggedProblem } from "../../src/logging/problem-memory.ts";
import { ProxyState } from "../../src/model/proxy-state.ts";
import { familyOf } from "../../src/net/ip.ts";
import { readAssets } from "../../src/tools/page/assets.ts";
import { pageHandler } from "../../src/tools/page/serve-page.ts";
import type { AddTraffic } from "../../src/tools/page/service-answer.ts";
import { TrackingHistory } from "../../src/tools/page/tracking-history.ts";

export interface PageOptions {
  /** Objects as the API writes them. */
  readonly items: readonly unknown[];
  readonly mode?: string;
  /** Parts of a KubeProxyConfiguration. @default none */
  readonly settings?: object;
  readonly limits?: ReturnType<LiveDaemon["limits"]>;
  readonly problems?: readonly LoggedProblem[];
  readonly failures?: { subject: string; reason: string }[];
  /** @default one that is free */
  readonly port?: number;
  readonly startedMs?: number;
  /** Waited for before the kernel has counted. */
  readonly counting?: () => Promise<void>;
  /** What connection tracking has. @default nothing */
  readonly flows?: readonly TrackedFlow[];
  /** How full connection tracking is. @default not known */
  readonly tracking?: { readonly entries: number; readonly max: number };
  /** How long the API server has been silent. @default there is none */
  readonly silentMs?: number;
  readonly isHealthy?: boolean;
  readonly program?: string;
}

export interface ServedPage {
  readonly url: string;
  readonly journal: SyncJournal;
  readonly daemon: LiveDaemon;
  readonly states: readonly ProxyState[];
  end(): Promise<void>;
}

/** Of node-a, at a port of 127.0.0.1. */
export async function servedPage(t: TestContext, options: PageOptions): Promise<ServedPage> {
  // Memory is part of the state, and grows in a young process: the same state would be another one.
  t.mock.method(process.memoryUsage, "rss", () => 5e7);
  const {
    items,
    mode = "nftables",
    settings,
    limits = [],
    problems = [],
    failures = [],
    port: wanted = 0,
    startedMs = 1,
    counting = async () => {},
    flows = [],
    tracking,
    silentMs,
    isHealthy = true,
    program = "kube-proxy-ts 1.2.3",
  } = options;
  const objects = projectObjects([{ apiVersion: "v1", kind: "List", items }], "items", { keepsPods: true });
  const { config } = await checkedSettings({ config: settings, mode, node: "node-a", adjust: undefined });
  const journal = new SyncJournal();
  const families = (["IPv4", "IPv6"] as const).map((family) => {
    const node = offlineNode(objects, config, family, () => {});
    const state = new ProxyState({
      family,
      nodeName: "node-a",
      allowExternalIPs: true,
      now: () => 0,
      log: silentLogger,
    });
    for (const object of objects.services) state.onService({ kind: "add", object });
    for (const object of objects.endpointSlices) {
      if (object.addressType === family) state.onEndpointSlice({ kind: "add", object });
    }
    state.applyChanges();
    const { nodeIP, detector, nodePortAddresses, serviceCIDRs } = node;
    return {
      node: { ...node, state },
      live: {
        ...{ family, state, nodeIP, detector, nodePortAddresses, serviceCIDRs: () => serviceCIDRs },
        status: SYNCED,
      },
    };
  });
  const own = objects.nodes.find(({ name }) => name === "node-a");
  const daemon: LiveDaemon = {
    program,
    mode,
    node: "node-a",
    zone: () => own?.zone,
    families: families.map(({ live }) => live),
    verdict: () => ({ ...HEALTHY, failures, silentMs, isHealthy }),
    journal,
    config,
    podCIDRs: own?.podCIDRs ?? [],
    limits: () => limits,
    problems: () => problems,
  };
  const addTraffic: AddTraffic = async (_inspection, explanations, _config, listen) => {
    await counting();
    if (listen !== undefined) await readFlows(["IPv4", "IPv6"], listen);
    return explanations.map((own) => ({
      ...own,
      frontends: own.frontends.map((one) => ({ ...one, open: 7, counted: null })),
      endpoints: own.endpoints.map((one, index) => ({ ...one, open: index, counted: 40 + index })),
      trafficNotes: ["Only open connections are known."],
    }));
  };
  const readFlows: FlowReader = async (families, begin) => {
    for (const family of families) {
      const visit = begin(family);
      for (const flow of flows) if (familyOf(flow.sourceIP) === family) visit(flow);
    }
    return true;
  };
  const viewOf = async ({ family }: { family: string }) => {
    const found = families.find(({ live }) => live.family === family);
    if (found === undefined) throw new Error(family);
    return found.node;
  };
  const stop = new AbortController();
  const lost = { invalid: 0, insertFailed: 0, dropped: 0, earlyDropped: 0 };
  const table = tracking && { ...NO_CONNTRACK, statistics: async () => ({ ...lost, ...tracking }) };
  const history = new TrackingHistory(table, stop.signal);
  const endpoint = startHttpEndpoint({
    address: `127.0.0.1:${wanted}`,
    handler: pageHandler(daemon, await readAssets(), {
      viewOf,
      addTraffic,
      readFlows,
      startedMs,
      tracking: history,
      signal: stop.signal,
    }),
    log: silentLogger,
    clock: systemClock,
    signal: stop.signal,
    isBindHardFail: true,
    onListenFailure() {},
    onHardFail() {},
  });
  const { port } = (await endpoint.listening) as AddressInfo; // the port is free
  const end = async () => {
    stop.abort();
    await endpoint.closed;
  };
  t.after(end);
  return { url: `http://127.0.0.1:${port}/`, journal, daemon, states: families.map(({ live }) => live.state), end };
}

/** A sync for the journal. */
export function syncRecord(changes: Partial<SyncRecord> = {}): Omit<SyncRecord, "number"> {
  return {
    family: "IPv4",
    endedMs: Date.UTC(2026, 0, 1, 10, 12, 3, 45),
    isFullSync: false,
    causes: [
      { kind: "object", object: "EndpointSlice", change: "update", namespace: "shop", name: "web-x7k", service: "web" },
    ],
    furtherCauses: 0,
    servicePorts: 1,
    stages: { waiting: 0.31, model: 0.08, rules: 2.1, kernel: 1.2, after: 0.12 },
    written: { "add element": 2, "delete element": 1 },
    result: "done",
    failures: [],
    furtherFailures: 0,
    ...changes,
  };
}
