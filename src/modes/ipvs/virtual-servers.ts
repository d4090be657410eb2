/** Compares and reconciles the virtual servers of one family in the kernel. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { KeyOwners } from "../../model/key-owners.ts";
import { cidrContains } from "../../net/ip.ts";
import type { GracefulTermination } from "./graceful-termination.ts";
import {
  type IpvsFailure,
  type IpvsOperation,
  type RealServerState,
  type VirtualServer,
  type VirtualServerKey,
  virtualServerText,
} from "./kernel/ipvs.ts";
import type { IpvsOptions } from "./options.ts";
import type { PlannedVirtualServer } from "./plan-service-port.ts";
import {
  type PresentVirtualServer,
  realServersOf,
  type VirtualServerStep,
  virtualServerStep,
} from "./virtual-server-step.ts";
import type { PartFailure } from "./wanted.ts";

type Steps = ReadonlyMap<string, VirtualServerStep>;

/** Steps by the text of the virtual server. */
export interface VirtualServerDifference {
  /** For wanted virtual servers. */
  readonly changes: Steps;
  /** For unwanted ones. */
  readonly deletions: Steps;
}

type Wanted = KeyOwners<PlannedVirtualServer>;

const WAITS = "it waits for its source ranges, which are not in force yet";

export class VirtualServers {
  readonly #options: IpvsOptions;
  readonly #graceful: GracefulTermination;
  /** Virtual servers that may differ from what was last wanted, by text. */
  #doubt = new Map<string, VirtualServerKey>();

  constructor(options: IpvsOptions, graceful: GracefulTermination) {
    this.#options = options;
    this.#graceful = graceful;
  }

  /** Reads everything from the kernel. */
  async compareAll(wanted: Wanted, signal: AbortSignal): Promise<VirtualServerDifference> {
    const { config, ipvs } = this.#options;
    this.#doubt = new Map();
    const difference = new Difference();
    const servers = await ipvs.virtualServers(config.family, signal);
    const present = new Map(servers.map((server) => [virtualServerText(server), server]));
    for (const key of new Set([...present.keys(), ...wanted.keys()])) {
      const [planned, found] = [wanted.get(key), present.get(key)];
      if (planned !== undefined) difference.add(key, planned, found && (await this.#read(found, signal)));
      else if (found && !this.#isExcluded(found))
        difference.add(key, planned, { virtualServer: found, realServers: [] });
      if (isTurnDue()) await giveTurn(signal);
    }
    return difference;
  }

  /** Reads only what is unknown: connections of real servers to be removed, and virtual servers in doubt. */
  async compareTouched(wanted: Wanted, signal: AbortSignal): Promise<VirtualServerDifference> {
    const difference = new Difference();
    const doubtful = this.#doubt;
    this.#doubt = new Map();
    for (const [key, before] of wanted.touched) {
      const after = wanted.get(key);
      if (doubtful.has(key)) continue;
      if (after === undefined && before !== undefined && this.#isExcluded(before.virtualServer)) continue;
      difference.add(key, after, await this.#presumed(before, after, signal));
    }
    await this.#compareDoubtful(doubtful, wanted, difference, signal);
    return difference;
  }

  /**
   * Adds and updates. What the kernel rejects is read from the kernel and tried once more.
   *
   * @param isOpen whether forbidden clients could reach the virtual server: if it does not exist yet, it waits for the next sync.
   */
  async change(
    { changes }: VirtualServerDifference,
    wanted: Wanted,
    signal: AbortSignal,
    isOpen: (virtualServer: VirtualServer) => boolean,
  ): Promise<readonly PartFailure[]> {
    const refused = await this.#carryOut(changes, signal, isOpen);
    const waiting = [...refused].filter(([, { reason }]) => reason === WAITS);
    for (const [key] of waiting) refused.delete(key);
    const again = new Difference();
    await this.#compareDoubtful(refused, wanted, again, signal);
    const failures = await this.#carryOut(again.changes, signal, isOpen);
    return this.#doubted(new Map([...waiting, ...failures]));
  }

  /** Deletes unwanted virtual servers. Comes after {@link VirtualServers.change}. */
  async delete({ deletions }: VirtualServerDifference, signal: AbortSignal): Promise<readonly PartFailure[]> {
    return this.#doubted(await this.#carryOut(deletions, signal));
  }

  #doubted(failures: ReadonlyMap<string, VirtualServerKey & { readonly reason: string }>): readonly PartFailure[] {
    for (const [key, known] of failures) this.#doubt.set(key, known);
    return Array.from(failures, ([key, { reason }]) => ({ kind: "virtualServers", key, reason }));
  }

  #isExcluded({ address }: VirtualServerKey): boolean {
    return this.#options.excludeCIDRs.some((cidr) => cidrContains(cidr, address));
  }

  /** The state in the kernel, provided that no other program changed it. */
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
    const realServers: RealServerState[] = realServersOf(before).map((server) => ({ ...server, ...idle }));
    for (const server of this.#graceful.of(virtualServerText(virtualServer))) {
      realServers.push({ ...server, weight: 0, activeConnections: 1, inactiveConnections: 0 });
    }
    return { virtualServer, realServers };
  }

  async #read(virtualServer: VirtualServer, signal: AbortSignal): Promise<PresentVirtualServer | undefined> {
    const realServers = await this.#options.ipvs.realServers(virtualServer, signal);
    return realServers === undefined ? undefined : { virtualServer, realServers };
  }

  /** Reads and compares virtual servers in doubt. */
  async #compareDoubtful(
    doubtful: ReadonlyMap<string, VirtualServerKey>,
    wanted: Wanted,
    difference: Difference,
    signal: AbortSignal,
  ): Promise<void> {
    for (const [key, known] of doubtful) {
      const planned = wanted.get(key);
      if (planned === undefined && this.#isExcluded(known)) continue;
      const virtualServer = await this.#options.ipvs.virtualServer(known);
      difference.add(key, planned, virtualServer && (await this.#read(virtualServer, signal)));
    }
  }

  /** @param isOpen virtual servers for which this is true are not added. */
  async #carryOut(steps: Steps, signal: AbortSignal, isOpen?: (virtualServer: VirtualServer) => boolean) {
    const { ipvs } = this.#options;
    const operations: IpvsOperation[] = [];
    const failures = new Map<string, VirtualServerKey & { readonly reason: string }>();
    for (const [key, { virtualServer, operations: own }] of steps) {
      if (own[0]?.kind === "add-virtual-server" && isOpen?.(virtualServer)) {
        failures.set(key, { ...virtualServer, reason: WAITS });
        continue;
      }
      for (const operation of own) operations.push(operation);
      if (isTurnDue()) await giveTurn(signal);
    }
    for (const failure of operations.length === 0 ? [] : await ipvs.apply(operations, signal)) {
      const { virtualServer } = failure.operation;
      const key = virtualServerText(virtualServer);
      if (!isDone(failure) && !failures.has(key)) failures.set(key, { ...virtualServer, reason: failure.message });
    }
    for (const [key, { virtualServer, draining }] of steps) {
      // A real server that is wanted again must not be removed once idle, even if its virtual server was rejected in part.
      if (draining !== undefined) this.#graceful.set(virtualServer, draining);
      else if (!failures.has(key)) this.#graceful.forget(key);
    }
    return failures;
  }
}

/** Whether a deletion failed because the object does not exist. */
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
