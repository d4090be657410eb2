/**
 * The daemon: from a validated configuration to running proxiers. The steps are in upstream's order (reference start.md
 * §1, steps 11 to 25), because each may end the process before the next touches the node.
 */
import { once } from "node:events";
import { hostname } from "node:os";
import { systemClock } from "../../async/clock.ts";
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { gatesOf } from "../../contract/config/feature-gates.ts";
import type { ModeRuntime, OpenMode } from "../../contract/dataplane.ts";
import type { ServiceHealthPorts } from "../../contract/observers.ts";
import { type ConntrackTable, NO_CONNTRACK } from "../../kernel/conntrack/conntrack.ts";
import { applyOomScore } from "../../kernel/oom-score.ts";
import type { LocalAddresses } from "../../kernel/route/addresses.ts";
import type { Logger } from "../../logging/logger.ts";
import { detectorFor } from "../../model/local-traffic-detector.ts";
import { nodeNameFrom } from "../../model/node-identity.ts";
import { nodePortAddresses, nodePortIPs } from "../../model/node-port-addresses.ts";
import { modeNamed, modesOn, modesReplacedBy, type RegisteredMode, runsOn } from "../../modes/registry.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { programIdentity } from "../../program/program-identity.ts";
import { buildInfo } from "../../program/version.ts";
import { ProxyHealth } from "../server/health/proxy-health.ts";
import { ServiceHealth } from "../server/health/service-health.ts";
import { ConnectionGate, serverLimits } from "../server/http/connection-gate.ts";
import { fullReporter } from "../server/http/http-endpoint.ts";
import { defineConntrackMetrics } from "../server/metrics/conntrack-metrics.ts";
import { createMetrics } from "../server/metrics/metrics.ts";
import { shortestSyncPeriodMs } from "../settings/defaults.ts";
import { watchConfigFile } from "../settings/watch-config-file.ts";
import { DualStackDispatcher, type NodeSink } from "../sync/dual-stack.ts";
import type { ConnectionEnding } from "../sync/gone-connections.ts";
import { SyncJournal } from "../sync/journal/sync-journal.ts";
import { Proxier } from "../sync/proxier.ts";
import { connectCluster } from "./cluster-connection.ts";
import type { Daemon, RunOptions } from "./daemon.ts";
import { applyEngineOptions } from "./engine-options.ts";
import { startServers } from "./http-servers.ts";
import { collectWhenIdle } from "./idle-memory.ts";
import { type FamilyProxier, serveInspection } from "./inspection.ts";
import { removeAllLeftovers, removeLeftovers, UNANSWERED_LEFT } from "./leftovers.ts";
import { followNodeAddresses } from "./node-address-follower.ts";
import { costlyService, frontendConflict, misreadAnnotation, nodeEvent, serviceHealthFailure } from "./node-events.ts";
import { type NodeKernel, nodeKernel } from "./node-kernel.ts";
import { NodeManager } from "./node-manager.ts";
import { type NodeSetup, setUpNode } from "./node-setup.ts";

/**
 * Runs until the signal aborts. @throws Error if the program cannot start, or must end because what it was built on has
 * changed.
 */
export async function runProxy(options: RunOptions, signal: AbortSignal): Promise<void> {
  const { config, configFile, configFileState, log } = options;
  const watch = configFile === "" ? undefined : watchConfigFile(configFile, configFileState);
  const stop = new AbortController();
  const fatal = (error: Error): void => {
    stop.abort(error);
    options.onFatal();
  };
  const ended = AbortSignal.any([signal, stop.signal]);
  try {
    const gates = gatesOf(config);
    const mode = modeNamed(config.mode);
    requirePlatform(mode);
    const nodeName = nodeNameFrom(config.hostnameOverride, hostname());
    const clock = systemClock;
    const nodes = nodeManagerFor(options, nodeName, fatal);
    const health = new ProxyHealth({ clock, syncPeriodMs: config.syncPeriodMs });
    const nodeSinks = [nodes, nodeHealth(health, nodeName)];
    const onMisread = (...misread: [string, string]) => events.record(misreadAnnotation(nodeName, ...misread));
    const { asked, onLeaving } = leavingAsked(options, mode);
    const dispatcher = new DualStackDispatcher({ nodeName, nodeSinks, onMisread, onLeaving, mode, log });
    const metrics = createMetrics();
    const connection = { options, nodeName, gates, health, metrics, clock, log };
    const { source, events, removeStartupTaint } = await connectCluster(connection);
    const running = source
      .run(dispatcher, ended)
      .catch((error: unknown) => fatal(error instanceof Error ? error : new Error(String(error))));
    // Meanwhile the lists are being fetched.
    const runtime = await mode.loadRuntime();
    const kernel = await nodeKernel();
    const isInspected = options.inspectSocket !== "" || options.inspectBindAddress !== "";
    const journal = isInspected ? new SyncJournal() : undefined;
    const parts = { mode, gates, nodeName, kernel, health, metrics, journal, clock, events, log };
    const daemon: Daemon = { options, ...parts, limits: serverLimits(kernel.raiseFileLimit()), ended, fatal };
    metrics.setBuildInfo(buildInfo(options.version), { ...programIdentity(), mode: mode.name });
    metrics.setFeatures(gates.list());
    // Started before the wait for the Node, which may never end: they show why.
    const sendingEvents = options.initOnly ? undefined : events.run(ended);
    const servers = options.initOnly ? undefined : await startServers(daemon);
    const { beforeFirstSync, afterFirstSync } = modesReplacedBy(mode);
    const leftovers = [...UNANSWERED_LEFT, ...beforeFirstSync];
    const [facts] = await Promise.all([startNode(nodes, daemon), removeLeftovers(leftovers, options)]);
    await runtime.awaitHost?.({ config, clock, log, signal: ended, onWaiting: (reason) => health.setWaiting(reason) });
    const setup = await setUpNode(config, facts, { ...mode, ...runtime }, log);
    if (usesNetfilter(mode, config)) await kernel.tuneConntrack(config.conntrack, log);
    const conntrack = usesNetfilter(mode, config) ? kernel.openConntrack() : NO_CONNTRACK;
    defineConntrackMetrics(metrics.families, conntrack);
    const openMode = await openModeOn(daemon, setup, conntrack, runtime.open);
    const proxiers = await createProxiers(daemon, setup, conntrack, openMode);
    if (options.initOnly) {
      await removeLeftovers(afterFirstSync, options);
      for (const ipFamily of setup.families) log.info("System initialized and --init-only specified", { ipFamily });
      stop.abort(new Finished());
      await openMode.close();
      await running;
      return;
    }
    applyEngineOptions();
    const collecting = collectWhenIdle({ clock, log }, ended);
    const removing = unlessOver(ended, Promise.all(proxiers.map(({ proxier }) => proxier.inForce)), async () => {
      await probeFrom(daemon, proxiers);
      const removed = removeAllLeftovers(afterFirstSync, { config, log, clock }, ended).then(() => {
        for (const { proxier } of proxiers) proxier.onLeftoversRemoved();
      });
      await Promise.all([removeStartupTaint(ended), removed]);
    });
    watch?.updated.then((message) => fatal(new Error(message)), fatal);
    await serve(daemon, setup, proxiers, dispatcher, conntrack, asked);
    await openMode.close();
    await Promise.all(proxiers.map(({ serviceHealth }) => serviceHealth.close()));
    await servers?.closed;
    await Promise.all([running, sendingEvents, collecting, removing]);
  } finally {
    await watch?.close();
    stop.abort(new Finished());
  }
  if (stop.signal.reason instanceof Error && !(stop.signal.reason instanceof Finished)) throw stop.signal.reason;
}

/** Resolves `asked` when the configuration, or by `onLeaving` a Service, first asks to leave out endpoints that do not answer. */
function leavingAsked({ config, log }: RunOptions, mode: RegisteredMode) {
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  if (config.connections.leaveUnanswered) {
    if (mode.leavesUnanswered !== undefined) resolve();
    else log.warn("connections.leaveUnanswered does not count in this mode", { mode: mode.name });
  }
  return { asked, onLeaving: () => resolve() };
}

function nodeManagerFor(
  { config, manifests, log }: RunOptions,
  nodeName: string,
  onFatal: (error: Error) => void,
): NodeManager {
  const needsPodCIDRs = config.detectLocalMode === "NodeCIDR";
  // Once it is read, a folder has no more to say at the start.
  const wait = manifests === "" ? {} : { maxWaitMs: 0 };
  return new NodeManager({ nodeName, needsPodCIDRs, ...wait, clock: systemClock, log, onFatal });
}

/** Comes before anything is asked or touched. @throws Error if the mode belongs to another system. */
function requirePlatform(mode: RegisteredMode): void {
  if (runsOn(mode, process.platform)) return;
  const here = modesOn(process.platform).map(({ name }) => name);
  const name = process.platform === "win32" ? "Windows" : process.platform;
  throw new Error(
    `${mode.name} mode does not run on ${name}: use ${here.join(", ")}; 'kube-proxy render --mode ${mode.name}' shows what it would do`,
  );
}

/** The reason for stopping when nothing is wrong. */
class Finished extends Error {}

/** If something stops the program during the wait for the node, rejects with that reason. */
async function startNode(nodes: NodeManager, { ended }: Daemon) {
  const facts = await nodes.start(ended);
  ended.throwIfAborted();
  return facts;
}

export function nodeHealth(health: ProxyHealth, nodeName: string): NodeSink {
  return {
    onEvent(event) {
      // A folder of manifests also has other Nodes.
      if (event.kind !== "delete" && event.object.name === nodeName) health.onNode(event.object);
    },
    onSynced() {},
  };
}

/** Acts once it is due; not at all if the program ends before that. */
async function unlessOver(ended: AbortSignal, due: Promise<unknown>, act: () => Promise<void>): Promise<void> {
  if (await Promise.race([due.then(() => true), over(ended).then(() => false)])) await act();
}

async function over(ended: AbortSignal): Promise<void> {
  if (!ended.aborted) await once(ended, "abort");
}

async function probeFrom(daemon: Daemon, proxiers: readonly ServedFamily[]): Promise<void> {
  const { nodeName, health, clock } = daemon;
  const { healthzService: service } = daemon.options;
  if (service === "") return;
  const { serviceProbe } = await import("./service-probe.ts");
  const states = proxiers.map(({ proxier }) => proxier.state);
  const topology = () => ({ nodeName, zone: proxiers[0]?.proxier.zone });
  health.setProbe(`connection to ${service}`, serviceProbe({ service, states, topology, clock }));
}

function usesNetfilter(mode: RegisteredMode, config: KubeProxyConfig): boolean {
  return mode.usesNetfilter?.(config) ?? true;
}

/** Logs the mode, and opens what its families share. */
async function openModeOn(
  { mode, options: { config }, nodeName, kernel, metrics, events, clock, log }: Daemon,
  { families, podCIDRs }: NodeSetup,
  conntrack: ConntrackTable,
  open: ModeRuntime["open"],
): Promise<OpenMode> {
  log.info(mode.startMessage);
  if (mode.deprecation !== undefined) {
    const { message, reason } = mode.deprecation;
    log.error(message, undefined);
    events.record(nodeEvent(nodeName, "Warning", reason, message));
  }
  const parts = { metrics: metrics.families, conntrack, addressWatch: kernel.addressWatch };
  return await open({ config, nodeName, families, podCIDRs, ...parts, clock, log });
}

interface ServedFamily extends FamilyProxier {
  readonly serviceHealth: ServiceHealthPorts;
  /** Follows the node's addresses until the signal aborts. */
  readonly followAddresses: (signal: AbortSignal) => Promise<void>;
}

async function createProxiers(
  daemon: Daemon,
  setup: NodeSetup,
  conntrack: ConntrackTable,
  openMode: OpenMode,
): Promise<readonly ServedFamily[]> {
  const { limits, clock, log } = daemon;
  const onFull = fullReporter(log, clock, { server: "health-check node ports" });
  const healthGate = new ConnectionGate({ ...limits.serviceHealth, onFull });
  const proxiers: ServedFamily[] = [];
  for (const family of setup.families) {
    proxiers.push(await createProxier(daemon, setup, family, conntrack, healthGate, openMode));
  }
  return proxiers;
}

async function createProxier(
  daemon: Daemon,
  setup: NodeSetup,
  family: IpFamily,
  conntrack: ConntrackTable,
  gate: ConnectionGate,
  openMode: OpenMode,
): Promise<ServedFamily> {
  const { health, metrics, clock, nodeName, kernel, events, journal } = daemon;
  const { config, isMinSyncPeriodSet } = daemon.options;
  const log = daemon.log.with({ ipFamily: family });
  const { detector, reason } = detectorFor(family, {
    mode: config.detectLocalMode,
    podCIDRs: setup.podCIDRs,
    ...config.detectLocal,
  });
  if (reason !== undefined && family === setup.addresses.primaryFamily) log.info(reason.message, reason.facts);
  const addresses = nodePortAddresses(family, daemon.mode.nodePortsEverywhere === true ? [] : setup.nodePortAddresses);
  const nodeIP = setup.addresses.ips[family];
  const backend = await openMode.backendFor({
    family,
    name: nodeName,
    nodeIP,
    detector,
    nodePortAddresses: addresses,
    log,
  });
  const known = await listenAddresses(addresses, kernel.localAddresses, log);
  const serviceHealth = new ServiceHealth({
    family,
    addresses: known,
    gate,
    clock,
    isProxyHealthy: () => config.healthzBindAddress === "" || health.isHealthy(),
    log,
    onListenFailure: (service, port, error) => {
      log.error("Failed to start healthcheck", error, { node: nodeName, service, port });
      events.record(serviceHealthFailure(nodeName, service, port, error));
    },
  });
  const proxier = new Proxier({
    nodeName,
    backend,
    metrics: metrics.syncMetrics(family),
    health,
    serviceHealth,
    conntrack,
    localAddresses: kernel.localAddresses,
    periods: {
      minMs: shortestSyncPeriodMs(config, isMinSyncPeriodSet),
      isMinChosen: isMinSyncPeriodSet,
      syncMs: config.syncPeriodMs,
    },
    allowExternalIPs: daemon.gates.isEnabled("AllowServiceExternalIPs"),
    clock,
    log: daemon.log,
    onConflict: (conflict) => events.record(frontendConflict(nodeName, conflict)),
    onCostlyService: (costly) => events.record(costlyService(nodeName, costly)),
    ...(journal && { journal }),
    ending: endingOf(config, kernel),
  });
  health.setMode(family, backend, () => [...proxier.failures, ...serviceHealth.failures]);
  const onChange = (ips: readonly IpAddress[], isNew: boolean): void => {
    serviceHealth.setAddresses(ips).catch((error: unknown) => log.error("Error syncing healthcheck services", error));
    if (isNew) proxier.onNodeAddresses();
  };
  const { addressWatch: watch, localAddresses: read } = kernel;
  const following = { addresses, watch, read, known, onChange, clock, log };
  const facts = { nodeIP, detector, nodePortAddresses: addresses };
  return {
    proxier,
    serviceHealth,
    backend,
    facts,
    followAddresses: (signal) => followNodeAddresses(following, signal),
  };
}

function endingOf({ connections }: KubeProxyConfig, { endTcpClients }: NodeKernel): ConnectionEnding {
  const { endTCP, endTCPAfterMs: afterMs } = connections;
  return { endTCP: endTCP === "Gone" ? "Gone" : "Never", afterMs, endSockets: endTcpClients };
}

/** Where to listen at first (reference health.md §14); everywhere, if the addresses cannot be read. */
async function listenAddresses(addresses: ReturnType<typeof nodePortAddresses>, read: LocalAddresses, log: Logger) {
  if (addresses.matchesAll) return "all" as const;
  try {
    const found = nodePortIPs(addresses, await read(addresses.family));
    return found.kind === "all" ? ("all" as const) : found.ips;
  } catch (error) {
    log.error("Failed to get local addresses: health-check node ports listen on all of them", error);
    return "all" as const;
  }
}

/** The longest that the end waits for endpoints that were left out: a kernel may hang. */
const PUT_BACK_MS = 5_000;

/** Lets the events in, and runs the sync loops until the end. */
async function serve(
  daemon: Daemon,
  setup: NodeSetup,
  proxiers: readonly ServedFamily[],
  dispatcher: DualStackDispatcher,
  conntrack: ConntrackTable,
  asked: Promise<void>,
): Promise<void> {
  const { options, ended, nodeName, events, clock, log } = daemon;
  log.info("Version info", { version: options.version });
  log.info("Runtime settings", { node: process.version, execArgv: process.execArgv.join(" ") });
  const settingOomScore = applyOomScore(options.config.oomScoreAdj, { log });
  dispatcher.attach(proxiers.map(({ proxier }) => proxier));
  events.record(nodeEvent(nodeName, "Normal", "Starting", startNote(options.config.mode)));
  const following = proxiers.map(({ followAddresses }) => followAddresses(ended));
  const inspecting = serveInspection(daemon, setup, proxiers, conntrack);
  const { countedServices, answerCheckPeriodMs } = options.config.connections;
  const isCounting = countedServices + answerCheckPeriodMs > 0;
  const counting = isCounting && (await import("./counted-connections.ts")).count(daemon, proxiers, conntrack);
  // What is left out when the program ends is put back by syncs, so these end after it.
  const stop = new AbortController();
  const left = unlessOver(ended, asked, async () =>
    (await import("./left-endpoints.ts")).leaveUnanswered(daemon, proxiers, conntrack),
  );
  const stopping = over(ended)
    .then(() => Promise.race([left, clock.sleep(PUT_BACK_MS, stop.signal)]))
    .finally(() => stop.abort(ended.reason));
  const running = proxiers.map(({ proxier }) => proxier.run(stop.signal));
  await Promise.all([settingOomScore, stopping, ...running, inspecting, counting, ...following]);
  await Promise.all(
    proxiers.map(async ({ backend, serviceHealth }) => {
      // The mode accepts no new connections while the last ones end: load balancers must not send any.
      if (backend.endsFlows === true) await serviceHealth.close();
      await backend.close?.();
    }),
  );
}

/** Contains both names: the program's own, and the one that people look for. */
function startNote(mode: string): string {
  const { name, version } = programIdentity();
  return `Starting kube-proxy (${name} ${version}) in ${mode} mode`;
}
