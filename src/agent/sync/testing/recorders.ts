/** Observers that record what they are told, one line per call, in one list each. */

import type { HealthReporter, ServiceHealthPorts, SyncMetrics } from "../../../contract/observers.ts";
import type { ConntrackTable, FlowFilter } from "../../../kernel/conntrack/conntrack.ts";
import type { Facts, Logger } from "../../../logging/logger.ts";
import type { Flow } from "../../../net/flow.ts";
import type { IpFamily } from "../../../net/ip.ts";

export class RecordingHealth implements HealthReporter {
  readonly calls: string[] = [];
  #isPending = false;

  /** Whether an update is owed. */
  get isPending(): boolean {
    return this.#isPending;
  }

  started(family: IpFamily): void {
    this.#isPending = false;
    this.calls.push(`started ${family}`);
  }

  updated(family: IpFamily): void {
    this.#isPending = false;
    this.calls.push(`updated ${family}`);
  }

  queuedUpdate(family: IpFamily): void {
    this.#isPending = true;
    this.calls.push(`queued ${family}`);
  }
}

export class RecordingMetrics implements SyncMetrics {
  readonly calls: string[] = [];
  pendingEndpointChanges = 0;
  pendingServices = 0;

  countEndpointChange(isPending: boolean): void {
    this.calls.push("endpoint change");
    if (isPending) this.pendingEndpointChanges++;
  }

  countServiceChange(pending: number): void {
    this.calls.push("service change");
    this.pendingServices = pending;
  }

  resetPending(): void {
    this.pendingServices = 0;
    this.pendingEndpointChanges = 0;
  }

  observeSync(seconds: number, isFullSync: boolean): void {
    this.calls.push(`${isFullSync ? "full" : "partial"} sync ${seconds}s`);
  }

  setLastSync(unixSeconds: number): void {
    this.calls.push(`last sync ${unixSeconds}`);
  }

  setLastQueued(unixSeconds: number): void {
    this.calls.push(`last queued ${unixSeconds}`);
  }

  observeNetworkProgramming(seconds: number): void {
    this.calls.push(`programming ${seconds}s`);
  }

  setNoLocalEndpoints(internal: number, external: number): void {
    this.calls.push(`no local endpoints ${internal} ${external}`);
  }

  observeConntrackCleanup(seconds: number, deleted: number): void {
    this.calls.push(`conntrack ${seconds}s ${deleted} deleted`);
  }

  countEndedConnections(count: number): void {
    this.calls.push(`${count} connections ended`);
  }

  countCostlyService(): void {
    this.calls.push("costly service");
  }

  countRepair(): void {
    this.calls.push("repair");
  }
}

export class RecordingServiceHealth implements ServiceHealthPorts {
  readonly calls: string[] = [];
  error: Error | undefined;

  async syncServices(ports: ReadonlyMap<string, number>, _changed?: ReadonlySet<string>): Promise<void> {
    this.calls.push(`services ${JSON.stringify([...ports])}`);
    if (this.error !== undefined) throw this.error;
  }

  async setAddresses(addresses: readonly string[]): Promise<void> {
    this.calls.push(`addresses ${addresses.join()}`);
  }

  syncEndpoints(counts: ReadonlyMap<string, number>): void {
    this.calls.push(`endpoints ${JSON.stringify([...counts])}`);
  }

  async close(): Promise<void> {}
}

/** A connection tracking table that is a list. */
export class FakeConntrack implements ConntrackTable {
  flows: readonly Flow[] = [];
  dumps = 0;
  dumpError: Error | undefined;
  /** This many dumps are interrupted before the first flow. */
  interruptions = 0;
  /** Flows that cannot be deleted. */
  readonly stuck = new Set<Flow>();

  async readFlows(_family: IpFamily, { protocol }: FlowFilter, begin: () => (flow: Flow) => void): Promise<boolean> {
    this.dumps++;
    if (this.dumpError !== undefined) throw this.dumpError;
    const visit = begin();
    if (this.interruptions-- > 0) return false;
    for (const flow of this.flows) if ((protocol ?? flow.protocol) === flow.protocol) visit(flow);
    return true;
  }

  async deleteFlow(_family: IpFamily, flow: Flow): Promise<boolean> {
    if (this.stuck.has(flow)) throw new Error(`flow from port ${flow.sourcePort} cannot be deleted`);
    const before = this.flows.length;
    this.flows = this.flows.filter((other) => other !== flow);
    return this.flows.length < before;
  }
}

/** A logger that keeps its lines: level, message and facts. */
export class RecordingLogger implements Logger {
  readonly lines: string[];
  readonly #facts: Facts;

  constructor(lines: string[] = [], facts: Facts = {}) {
    this.lines = lines;
    this.#facts = facts;
  }

  info(message: string, facts?: Facts): void {
    this.#add("I", message, facts);
  }

  v(level: number, message: string, facts?: Facts): void {
    this.#add(`V${level}`, message, facts);
  }

  warn(message: string, facts?: Facts): void {
    this.#add("W", message, facts);
  }

  error(message: string, error: unknown, facts?: Facts): void {
    this.#add("E", message, error instanceof Error ? { err: error.message, ...facts } : facts);
  }

  with(facts: Facts): Logger {
    return new RecordingLogger(this.lines, { ...this.#facts, ...facts });
  }

  isVerbose(): boolean {
    return true;
  }

  #add(level: string, message: string, facts?: Facts): void {
    this.lines.push(`${level} ${message} ${JSON.stringify({ ...facts, ...this.#facts })}`);
  }
}
