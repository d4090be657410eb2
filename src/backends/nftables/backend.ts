/**
 * The nftables mode for one address family: plans what changed and commits the difference in one batch. Known state is
 * read back from the kernel at the start and whenever it is in doubt; both take the path of an ordinary full sync, which
 * writes nothing where nothing differs. Reference nftables.md §11.
 */
import { type Nftables, NftError, type NftForeignChange } from "../../kernel/nftables/nftables.ts";
import type { Logger } from "../../logging/logger.ts";
import { FrontEndIndex } from "../../model/front-ends.ts";
import type { NodePortIPs } from "../../model/node-port-addresses.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, familyOf, parseCidr } from "../../net/ip.ts";
import type { Backend, LostRules, SyncFailure, SyncInput, SyncOutcome } from "../../sync/backend.ts";
import { TimeSlice } from "../../sync/time-slice.ts";
import { TransactionDraft } from "./draft.ts";
import { isServiceChain } from "./names.ts";
import type { PlanConfig, PlanFacts } from "./plan-options.ts";
import { planServicePort } from "./plan-service-port.ts";
import { planStatic } from "./plan-static.ts";
import { type DesiredPort, desiredPort } from "./port-objects.ts";
import { TableState } from "./table-state.ts";

/** How often a full sync starts again because somebody else changed the ruleset while it was being worked out. */
const MAX_CONFLICTS = 5;
/** How many service ports may be found guilty one by one before the sync gives up for now. */
const MAX_CULPRITS = 64;

/** The measurements of this mode (reference nftables.md §12), one family. */
export interface NftablesMetrics {
  readonly syncFailures: { inc(): void };
}

export interface NftablesBackendOptions {
  readonly config: PlanConfig;
  readonly nft: Nftables;
  /** Asked on every full sync. Resolves to undefined when the host's addresses cannot be read. */
  readonly nodePortIPs: () => Promise<NodePortIPs | undefined>;
  readonly metrics: NftablesMetrics;
  readonly log: Logger;
}

export class NftablesBackend implements Backend {
  readonly mode = "nftables";
  readonly family;
  readonly usesServiceCIDRs = true;
  readonly #options: NftablesBackendOptions;
  readonly #frontEnds = new FrontEndIndex();
  readonly #state = new TableState();
  #facts: PlanFacts | undefined;
  /** Chains of service ports that others have touched since they were last written. */
  #damagedChains = new Set<string>();

  constructor(options: NftablesBackendOptions) {
    this.#options = options;
    this.family = options.config.family;
  }

  async sync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#reportConflicts(input);
    if (!input.isFullSync && this.#facts !== undefined) {
      const outcome = await this.#partialSync(input, this.#facts);
      if (outcome !== undefined) return outcome;
    }
    return await this.#fullSync(input, signal);
  }

  /** Sees what other programs do to the table, as it happens. */
  async monitor(onLost: (lost?: LostRules) => void, signal: AbortSignal): Promise<void> {
    await this.#options.nft.watch((change) => onLost(this.#assess(change)), signal);
  }

  /** Damage that is confined to chains of known service ports is repaired by rewriting those; all else by a full sync. */
  #assess(change: NftForeignChange): LostRules | undefined {
    const { by, chains, sets, isTotal } = change;
    this.#options.log.warn("Somebody else changed our nftables rules; repairing them", {
      chains: [...chains].join(", "),
      sets: [...sets].join(", "),
      wholeTable: isTotal,
      pid: by?.pid,
      process: by?.name,
    });
    if (isTotal || sets.size > 0 || [...chains].some((chain) => !isServiceChain(chain))) return undefined;
    const ports = new Set<string>();
    for (const owner of this.#state.owners()) {
      const installed = this.#state.installed(owner);
      if ([...chains].some((chain) => installed?.chains.has(chain) === true)) ports.add(owner);
    }
    for (const chain of chains) this.#damagedChains.add(chain);
    return ports.size > 0 ? { ports } : undefined;
  }

  #reportConflicts(input: SyncInput): void {
    for (const key of input.changedPorts) {
      this.#frontEnds.set(key, input.services.get(key));
      for (const { frontEnd, claimants } of this.#frontEnds.conflictsOf(key)) {
        const [winner] = claimants;
        this.#options.log.warn("Several service ports claim the same address; the first by name answers", {
          frontEnd,
          claimants: claimants.join(", "),
          winner,
        });
      }
    }
  }

  #plan(port: ServicePort, input: SyncInput, facts: PlanFacts): DesiredPort {
    const endpoints = input.endpoints.get(port.name.key) ?? [];
    return desiredPort(planServicePort(port, endpoints, this.#options.config, facts));
  }

  /** Commits the changed ports only. Resolves to undefined when a full sync must take over. */
  async #partialSync(input: SyncInput, facts: PlanFacts): Promise<SyncOutcome | undefined> {
    const draft = new TransactionDraft();
    for (const key of input.changedPorts) {
      const port = input.services.get(key);
      const desired = port === undefined ? undefined : this.#plan(port, input, facts);
      this.#state.change(draft, key, desired, this.#damagedChains);
    }
    try {
      await this.#commit(draft);
    } catch (error) {
      this.#facts = undefined;
      this.#options.metrics.syncFailures.inc();
      if (!isAttributable(error)) throw error;
      this.#options.log.error("nftables partial sync was refused, comparing all rules with the kernel's", error);
      return undefined;
    }
    this.#damagedChains = new Set();
    return { failures: [], noLocalEndpoints: this.#state.lacking };
  }

  async #fullSync(input: SyncInput, signal: AbortSignal): Promise<SyncOutcome> {
    this.#facts = undefined;
    const facts = await this.#readFacts(input);
    const plan = planStatic(this.#options.config, facts);
    const ports = new Map<string, DesiredPort>();
    const slice = new TimeSlice();
    for (const key of [...input.services.keys()].sort()) {
      const port = input.services.get(key);
      if (port !== undefined) ports.set(key, this.#plan(port, input, facts));
      if (slice.isOver()) await slice.next(signal);
    }
    const failures = new Map<string, SyncFailure>();
    for (let conflicts = 0; ; ) {
      const content = await this.#options.nft.read();
      const draft = this.#state.reconcile(content, plan, facts, ports);
      try {
        await this.#commit(draft, content?.generation);
        break;
      } catch (error) {
        if (error instanceof NftError && error.code === "conflict" && conflicts < MAX_CONFLICTS) {
          conflicts += 1;
          continue;
        }
        this.#options.metrics.syncFailures.inc();
        this.#options.log.error("nftables sync failed", error);
        if (!isAttributable(error) || failures.size >= MAX_CULPRITS) throw error;
        const owner = error.operation === undefined ? undefined : draft.ownerOf(error.operation);
        const culprit = owner === undefined ? undefined : ports.get(owner);
        if (owner === undefined || culprit === undefined) throw error;
        // Without its own part the rest may well be accepted. What the kernel has for it is removed with the rest that
        // nobody wants: a chain that cannot be written must not be reachable half-written.
        ports.delete(owner);
        failures.set(owner, { subject: input.services.get(owner)?.name.text ?? owner, reason: error.message });
      }
    }
    this.#damagedChains = new Set();
    this.#facts = facts;
    return { failures: [...failures.values()], noLocalEndpoints: this.#state.lacking };
  }

  async #commit(draft: TransactionDraft, generation?: number): Promise<void> {
    if (draft.size === 0) return;
    await this.#options.nft.transact(draft.operations(), generation === undefined ? {} : { generation });
  }

  async #readFacts(input: SyncInput): Promise<PlanFacts> {
    const nodePortIPs = await this.#options.nodePortIPs();
    const cidrs = input.serviceCIDRs.map((text) => parseCidr(text)).filter((cidr) => cidr !== undefined) as Cidr[]; // filtered above
    return {
      zone: input.zone,
      nodePortIPs: nodePortIPs ?? { kind: "ips", ips: [] },
      serviceCIDRs: cidrs.filter((cidr) => familyOf(cidr) === this.family).sort(),
    };
  }
}

/** Whether a refusal may be the fault of a part, so that leaving it out, or asking the kernel again, can help. */
function isAttributable(error: unknown): error is NftError {
  return error instanceof NftError && error.code !== "denied" && error.code !== "conflict";
}
