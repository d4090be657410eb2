/** A proxy mode whose kernel is a map, and whose syncs take as long and end as a test says. */

import type { Clock } from "../../../async/clock.ts";
import type { Backend, LostRules, OnLostRules, SyncInput, SyncOutcome } from "../../../contract/backend.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import type { IpFamily } from "../../../net/ip.ts";

/** How one sync goes. A rejected key keeps what the kernel held; a sync that throws leaves half of its changes. */
export interface SyncScript {
  readonly durationMs?: number;
  readonly error?: Error;
  readonly refused?: readonly string[];
  /** The rejected parts affect every Service. */
  readonly concernsAll?: true;
  /** The sync checked everything. */
  readonly wasFull?: boolean;
}

/** What a sync was given, copied: the maps themselves are live. */
export interface SyncCall {
  readonly startMs: number;
  readonly isFullSync: boolean;
  readonly changedPorts: readonly string[];
  readonly zone: string | undefined;
  readonly serviceCIDRs: readonly string[];
}

/** What the fake kernel holds for one service port: its addresses and endpoints, as text. */
export function programOf(port: ServicePort, endpoints: readonly Endpoint[] | undefined): string {
  const backends = (endpoints ?? []).map(({ text, isReady }) => `${text}${isReady ? "" : "!"}`);
  return `${port.clusterIP}:${port.port}/${port.nodePort} -> ${backends.join(" ")}`;
}

/** What a full sync of these maps leaves in the fake kernel. */
export function programAll(input: Pick<SyncInput, "services" | "endpoints">): Map<string, string> {
  return new Map([...input.services].map(([key, port]) => [key, programOf(port, input.endpoints.get(key))]));
}

export class FakeBackend implements Backend {
  readonly mode = "fake";
  readonly family: IpFamily;
  usesServiceCIDRs = false;
  usesOtherNodes = false;
  skipsPeriodicFullSync = false;
  endsFlows = false;
  restMs = 0;
  portsAtOnce = Number.POSITIVE_INFINITY;
  /** What is in the kernel. */
  programmed = new Map<string, string>();
  readonly calls: SyncCall[] = [];
  /** The caller's violations of the contract: overlapping syncs, or maps that changed during one. */
  readonly violations: string[] = [];
  script: (call: number, input: SyncInput) => SyncScript = () => ({});
  /** Set while the monitor runs. */
  lose: ((lost?: LostRules) => void) | undefined;
  /** The same, for requests without a loss. */
  requestSync: (() => void) | undefined;
  monitorError: Error | undefined;
  readonly #clock: Clock;
  #isBusy = false;
  /** Rejected by the last sync; retried with the next one. */
  #refused: readonly string[] = [];

  constructor(clock: Clock, family: IpFamily = "IPv4") {
    this.#clock = clock;
    this.family = family;
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    if (this.#isBusy) this.violations.push("two syncs at once");
    this.#isBusy = true;
    try {
      return await this.#program(input, signal);
    } finally {
      this.#isBusy = false;
    }
  }

  async monitor(onLost: OnLostRules, signal: AbortSignal, requestSync: () => void): Promise<void> {
    const error = this.monitorError;
    this.monitorError = undefined;
    if (error !== undefined) throw error;
    this.lose = (lost) => {
      this.programmed.clear();
      onLost(lost);
    };
    this.requestSync = requestSync;
    await this.#clock.sleep(Number.MAX_SAFE_INTEGER, signal);
    this.lose = undefined;
  }

  async #program(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    const { isFullSync, zone, serviceCIDRs } = input;
    const changedPorts = [...input.changedPorts].sort();
    this.calls.push({ startMs: this.#clock.monotonicMs(), isFullSync, changedPorts, zone, serviceCIDRs });
    const {
      durationMs,
      error,
      refused = [],
      concernsAll,
      wasFull = isFullSync,
    } = this.script(this.calls.length, input);
    const wanted = programAll(input);
    if (durationMs !== undefined) await this.#clock.sleep(durationMs, signal);
    signal.throwIfAborted();
    if (JSON.stringify([...programAll(input)]) !== JSON.stringify([...wanted])) {
      this.violations.push("the maps changed during a sync");
    }
    const keys = [...new Set(isFullSync ? [...this.programmed.keys(), ...wanted.keys()] : changedPorts)];
    for (const key of this.#refused) if (!keys.includes(key)) keys.push(key);
    const reached = error === undefined ? keys : keys.slice(0, keys.length / 2);
    for (const key of reached) {
      const program = wanted.get(key);
      if (refused.includes(key)) continue;
      if (program === undefined) this.programmed.delete(key);
      else this.programmed.set(key, program);
    }
    if (error !== undefined) throw error;
    this.#refused = refused;
    return {
      failures: refused.map((key) => ({
        subject: input.services.get(key)?.name.text ?? key,
        reason: "refused",
        ...(concernsAll && { concernsAll }),
      })),
      wasFull,
    };
  }
}
