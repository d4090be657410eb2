/** The virtual servers of one family in the kernel: where they differ from what is wanted, and the changes that end it. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import {
  type Ipvs,
  type IpvsFailure,
  type IpvsOperation,
  type RealServerState,
  type VirtualServer,
  virtualServerText,
} from "../../kernel/ipvs/ipvs.ts";
import { type Cidr, cidrContains, type IpFamily } from "../../net/ip.ts";
import type { KeyOwners } from "../shared/key-owners.ts";
import { Doubt } from "../shared/reconciler.ts";
import type { GracefulTermination } from "./graceful-termination.ts";
import type { PlannedVirtualServer } from "./plan-service-port.ts";
import { type PresentVirtualServer, type VirtualServerStep, virtualServerStep, WEIGHT } from "./virtual-server-step.ts";

/** Steps by the text of the virtual server. */
export interface VirtualServerDifference {
  /** For virtual servers that are wanted. */
  readonly changes: ReadonlyMap<string, VirtualServerStep>;
  /** For those that are not. */
  readonly deletions: ReadonlyMap<string, VirtualServerStep>;
}

/** Why a virtual server is not as wanted, by its text. */
export type VirtualServerFailures = Map<string, string>;

interface VirtualServersOptions {
  readonly ipvs: Ipvs;
  readonly family: IpFamily;
  /** Virtual servers with these addresses are never deleted: ipvs.md §9. */
  readonly excludeCIDRs: readonly Cidr[];
  readonly graceful: GracefulTermination;
}

type Wanted = KeyOwners<PlannedVirtualServer>;

export class VirtualServers {
  readonly #options: VirtualServersOptions;
  /** By text. */
  readonly #doubt = new Doubt<string, VirtualServer>();

  constructor(options: VirtualServersOptions) {
    this.#options = options;
  }

  /** Asks the kernel for everything. */
  async compareAll(wanted: Wanted, signal: AbortSignal): Promise<VirtualServerDifference> {
    const { ipvs, family } = this.#options;
    this.#doubt.take();
    const difference = new Difference();
    const unmet = new Set(wanted.keys());
    for (const virtualServer of await ipvs.virtualServers(family, signal)) {
      const key = virtualServerText(virtualServer);
      const planned = wanted.get(key);
      unmet.delete(key);
      if (planned !== undefined) difference.add(key, planned, await this.#read(virtualServer, signal));
      else if (!this.isExcluded(virtualServer)) difference.add(key, undefined, { virtualServer, realServers: [] });
      if (isTurnDue()) await giveTurn(signal);
    }
    for (const key of unmet) {
      difference.add(key, wanted.get(key), undefined);
      if (isTurnDue()) await giveTurn(signal);
    }
    return difference;
  }

  /** Asks the kernel only for what cannot be known: connections of real servers that go, and what is in doubt. */
  async compareTouched(wanted: Wanted, signal: AbortSignal): Promise<VirtualServerDifference> {
    const difference = new Difference();
    const doubtful = this.#doubt.take();
    for (const [key, before] of wanted.touched) {
      const after = wanted.get(key);
      if (doubtful.has(key) || samePlans(before, after)) continue;
      if (after === undefined && before !== undefined && this.isExcluded(before.virtualServer)) continue;
      difference.add(key, after, await this.#presumed(before, after, signal));
    }
    for (const known of doubtful.values()) await this.#compareDoubtful(known, wanted, difference, signal);
    return difference;
  }

  /**
   * Adds and updates. What the kernel refuses is looked up and tried once more.
   *
   * @param isOpen whether clients would reach the virtual server that must not: one that is not there yet waits for the next sync.
   */
  async change(
    { changes }: Pick<VirtualServerDifference, "changes">,
    wanted: Wanted,
    signal: AbortSignal,
    isOpen: (virtualServer: VirtualServer) => boolean = () => false,
  ): Promise<VirtualServerFailures> {
    const failures: VirtualServerFailures = new Map();
    const allowed = (steps: ReadonlyMap<string, VirtualServerStep>): ReadonlyMap<string, VirtualServerStep> => {
      const kept = new Map(steps);
      for (const [key, { virtualServer, operations }] of steps) {
        if (operations[0]?.kind !== "add-virtual-server" || !isOpen(virtualServer)) continue;
        failures.set(key, "it waits for its source ranges, which are not in force yet");
        kept.delete(key);
      }
      return kept;
    };
    const refused = await this.#carryOut(allowed(changes), signal);
    const again = new Difference();
    for (const known of this.#definitions(refused, changes).values()) {
      await this.#compareDoubtful(known, wanted, again, signal);
    }
    for (const [key, reason] of await this.#carryOut(allowed(again.changes), signal)) failures.set(key, reason);
    return this.#doubted(failures, changes);
  }

  /** Deletes what is not wanted. Comes after {@link VirtualServers.change}. */
  async delete({ deletions }: VirtualServerDifference, signal: AbortSignal): Promise<VirtualServerFailures> {
    return this.#doubted(await this.#carryOut(deletions, signal), deletions);
  }

  #doubted(failures: VirtualServerFailures, steps: ReadonlyMap<string, VirtualServerStep>): VirtualServerFailures {
    for (const [key, virtualServer] of this.#definitions(failures, steps)) this.#doubt.add(key, virtualServer);
    return failures;
  }

  #definitions(
    failures: VirtualServerFailures,
    steps: ReadonlyMap<string, VirtualServerStep>,
  ): Map<string, VirtualServer> {
    const definitions = new Map<string, VirtualServer>();
    for (const key of failures.keys()) {
      const step = steps.get(key);
      if (step !== undefined) definitions.set(key, step.virtualServer);
    }
    return definitions;
  }

  isExcluded({ address }: Pick<VirtualServer, "address">): boolean {
    return this.#options.excludeCIDRs.some((cidr) => cidrContains(cidr, address));
  }

  /** What the kernel has if no other program has changed it. */
  async #presumed(
    before: PlannedVirtualServer | undefined,
    after: PlannedVirtualServer | undefined,
    signal: AbortSignal,
  ): Promise<PresentVirtualServer | undefined> {
    if (before === undefined) return undefined;
    const { virtualServer } = before;
    if (after !== undefined && virtualServer.protocol === "TCP" && losesEndpoint(before, after)) {
      return await this.#read(virtualServer, signal);
    }
    const idle = { activeConnections: 0, inactiveConnections: 0 };
    const realServers: RealServerState[] = before.endpoints.map(({ ip, port }) => {
      return { address: ip, port, weight: WEIGHT, ...idle };
    });
    for (const server of this.#options.graceful.of(virtualServerText(virtualServer))) {
      realServers.push({ ...server, weight: 0, activeConnections: 1, inactiveConnections: 0 });
    }
    return { virtualServer, realServers };
  }

  async #read(virtualServer: VirtualServer, signal: AbortSignal): Promise<PresentVirtualServer | undefined> {
    const realServers = await this.#options.ipvs.realServers(virtualServer, signal);
    return realServers === undefined ? undefined : { virtualServer, realServers };
  }

  async #compareDoubtful(
    known: VirtualServer,
    wanted: Wanted,
    difference: Difference,
    signal: AbortSignal,
  ): Promise<void> {
    const key = virtualServerText(known);
    const planned = wanted.get(key);
    if (planned === undefined && this.isExcluded(known)) return;
    const virtualServer = await this.#options.ipvs.virtualServer(known);
    const present = virtualServer && (await this.#read(virtualServer, signal));
    difference.add(key, planned, present);
  }

  async #carryOut(steps: ReadonlyMap<string, VirtualServerStep>, signal: AbortSignal): Promise<VirtualServerFailures> {
    const { ipvs, graceful } = this.#options;
    const operations: IpvsOperation[] = [];
    for (const step of steps.values()) {
      for (const operation of step.operations) operations.push(operation);
      if (isTurnDue()) await giveTurn(signal);
    }
    const refused = operations.length === 0 ? [] : await ipvs.apply(operations, signal);
    const failures: VirtualServerFailures = new Map();
    for (const failure of refused) {
      const key = virtualServerText(failure.operation.virtualServer);
      if (!isDone(failure) && !failures.has(key)) failures.set(key, failure.message);
    }
    for (const [key, { virtualServer, draining }] of steps) {
      // What is wanted again must not go when it is idle, even where something else of its virtual server was refused.
      if (draining !== undefined) graceful.set(virtualServer, draining);
      else if (!failures.has(key)) graceful.forget(key);
    }
    return failures;
  }
}

/** Whether what could not be deleted is not there anyway. */
function isDone({ operation, code }: IpvsFailure): boolean {
  if (operation.kind === "delete-virtual-server") return code === "ESRCH";
  return operation.kind === "delete-real-server" && code === "ENOENT";
}

class Difference implements VirtualServerDifference {
  readonly changes = new Map<string, VirtualServerStep>();
  readonly deletions = new Map<string, VirtualServerStep>();

  add(key: string, wanted: PlannedVirtualServer | undefined, present: PresentVirtualServer | undefined): void {
    const step = virtualServerStep(wanted, present);
    if (step !== undefined) (wanted === undefined ? this.deletions : this.changes).set(key, step);
  }
}

function losesEndpoint(before: PlannedVirtualServer, after: PlannedVirtualServer): boolean {
  const kept = new Set(after.endpoints.map(({ text }) => text));
  return before.endpoints.some(({ text }) => !kept.has(text));
}

/** Whether two plans of one virtual server ask for the same. */
function samePlans(a: PlannedVirtualServer | undefined, b: PlannedVirtualServer | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const [one, two] = [a.virtualServer, b.virtualServer];
  return (
    one.scheduler === two.scheduler &&
    one.flags === two.flags &&
    one.timeoutSeconds === two.timeoutSeconds &&
    a.endpoints.length === b.endpoints.length &&
    a.endpoints.every(({ text }, index) => text === b.endpoints[index]?.text)
  );
}
