/**
 * Puts payloads into the kernel and, when one is refused, finds out whose fault it was: the others are programmed, the
 * culprits keep their last good rules and are named.
 */
import { type Iptables, IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import type { ServicePortName } from "../../model/service-port-name.ts";
import type { SyncFailure } from "../../sync/backend.ts";
import {
  deltaPayload,
  fullPayload,
  type KeptOwner,
  type OwnerChange,
  ownerOfLine,
  type Payload,
  removalOf,
  staleChainOwner,
  type WrittenRules,
} from "./payload.ts";
import type { StaticPlan } from "./plan-static.ts";
import { type InstalledRules, installed, type PortRules } from "./port-rules.ts";
import { SavedRules } from "./saved-rules.ts";

/** How many culprits are excluded one by one on the tool's word before halving takes over. */
const MAX_NAMED_CULPRITS = 8;

/** A port to be programmed by a full transaction. */
export interface DesiredPort {
  readonly name: ServicePortName;
  readonly rules: PortRules;
}

/** What the kernel holds after a transaction that got somewhere. */
export interface TransactionResult {
  /** By owner. */
  readonly failures: Map<string, SyncFailure>;
  /** By owner; owners that failed have what was kept of them, or nothing. */
  readonly installed: Map<string, InstalledRules>;
  readonly written: WrittenRules;
}

/** Sends a payload; resolves to its counts. Throws {@link IptablesRestoreError}. */
async function send(iptables: Iptables, payload: Payload): Promise<WrittenRules> {
  if (payload.parts.length > 0) await iptables.restore(texts(payload));
  return payload.written;
}

function* texts(payload: Payload): Iterable<string> {
  for (const part of payload.parts) yield part.text;
}

/** Whether a failure may be the fault of single rules, so that leaving them out can help. */
export function isAttributable(error: unknown): error is IptablesRestoreError {
  return error instanceof IptablesRestoreError && error.code !== "lock_held" && error.code !== "missing_tool";
}

/** Applies the changes in one transaction, all or nothing. Throws what `restore` throws. */
export async function applyDelta(iptables: Iptables, changes: readonly OwnerChange[]): Promise<WrittenRules> {
  return await send(iptables, deltaPayload(changes));
}

/** The input of {@link applyFull}. */
export interface FullTransaction {
  readonly plan: StaticPlan;
  /** In the order in which rules shall stand in shared chains. */
  readonly ports: ReadonlyMap<string, DesiredPort>;
  /** Ports that could not even be planned; their last good rules are kept. */
  readonly unplanned: ReadonlyMap<string, { readonly name: ServicePortName; readonly reason: string }>;
  /** nat chains of ours that exist and that no port of this transaction owns. */
  readonly staleChains: readonly string[];
  readonly onRefused: (error: IptablesRestoreError) => void;
}

/**
 * Rewrites all our rules. When the kernel refuses, leaves out the owners that the tool names, then, if it names nobody,
 * halves its way to the culprits. Rejects with the tool's error when not even the static rules are accepted, the lock is
 * held, or the tool is missing: the kernel then holds what it held, table by table.
 */
export async function applyFull(iptables: Iptables, full: FullTransaction): Promise<TransactionResult> {
  const attempt = new FullAttempt(iptables, full);
  for (const [owner, { name, reason }] of full.unplanned) await attempt.exclude(owner, name, reason);
  for (let round = 0; ; round += 1) {
    try {
      return await attempt.run();
    } catch (error) {
      if (!isAttributable(error)) throw error;
      full.onRefused(error);
      const isNamed = round < MAX_NAMED_CULPRITS && (await attempt.excludeNamed(error));
      if (!isNamed) return await attempt.bisect(error);
    }
  }
}

/** The state of one full transaction across its attempts. */
class FullAttempt {
  readonly #iptables: Iptables;
  readonly #full: FullTransaction;
  readonly #failures = new Map<string, SyncFailure>();
  readonly #kept = new Map<string, InstalledRules | undefined>();
  #saved: SavedRules | undefined;
  #payload: Payload | undefined;

  constructor(iptables: Iptables, full: FullTransaction) {
    this.#iptables = iptables;
    this.#full = full;
  }

  async run(): Promise<TransactionResult> {
    const ports: [string, PortRules][] = [];
    for (const [owner, { rules }] of this.#full.ports) if (!this.#kept.has(owner)) ports.push([owner, rules]);
    this.#payload = fullPayload({
      plan: this.#full.plan,
      ports,
      kept: this.#keptOwners(),
      staleChains: this.#staleChains(),
    });
    const written = await send(this.#iptables, this.#payload);
    const result = this.#keptInstalled();
    for (const [owner, rules] of ports) result.set(owner, installed(rules));
    return { failures: this.#failures, installed: result, written };
  }

  /** Leaves an owner out of later attempts, with its last good rules in place. */
  async exclude(owner: string, name: ServicePortName | undefined, reason: string): Promise<void> {
    this.#failures.set(owner, { subject: name?.text ?? owner, reason });
    if (name !== undefined) this.#kept.set(owner, (await this.#savedRules()).of(name));
  }

  /** Excludes the owner of the line that the tool complained about; false when that leads to nobody new. */
  async excludeNamed(error: IptablesRestoreError): Promise<boolean> {
    if (error.line === undefined || this.#payload === undefined) return false;
    const owner = ownerOfLine(this.#payload, error.line);
    if (owner === undefined || this.#failures.has(owner)) return false;
    await this.exclude(owner, this.#full.ports.get(owner)?.name, error.output);
    return true;
  }

  /**
   * First leaves everything as it is but the static rules; if even that is refused, nobody in particular is to blame.
   * Then brings owners in, halving every group that is refused.
   */
  async bisect(original: IptablesRestoreError): Promise<TransactionResult> {
    const saved = await this.#savedRules();
    const changes: OwnerChange[] = [];
    for (const [owner, { name, rules }] of this.#full.ports) {
      if (this.#kept.has(owner)) continue;
      const before = saved.of(name);
      this.#kept.set(owner, before);
      changes.push(before === undefined ? { owner, after: rules } : { owner, before, after: rules });
    }
    const stale = this.#staleChains();
    let written: WrittenRules;
    try {
      const kept = this.#keptOwners();
      written = await send(this.#iptables, fullPayload({ plan: this.#full.plan, ports: [], kept }));
    } catch {
      throw original;
    }
    const result = this.#keptInstalled();
    await this.#applyHalving(changes, result);
    await this.#applyHalving(stale.map(removalOf), result);
    return { failures: this.#failures, installed: result, written };
  }

  async #applyHalving(changes: readonly OwnerChange[], result: Map<string, InstalledRules>): Promise<void> {
    if (changes.length === 0) return;
    try {
      await send(this.#iptables, deltaPayload(changes));
    } catch (error) {
      if (!isAttributable(error)) throw error;
      this.#full.onRefused(error);
      const [only] = changes;
      if (changes.length === 1 && only !== undefined) {
        const subject = this.#full.ports.get(only.owner)?.name.text ?? only.owner;
        this.#failures.set(only.owner, { subject, reason: error.output });
        return;
      }
      const middle = changes.length >> 1;
      await this.#applyHalving(changes.slice(0, middle), result);
      await this.#applyHalving(changes.slice(middle), result);
      return;
    }
    for (const { owner, after } of changes) if (after !== undefined) result.set(owner, installed(after));
  }

  #keptOwners(): KeptOwner[] {
    const owners: KeptOwner[] = [];
    for (const [owner, rules] of this.#kept) if (rules !== undefined) owners.push({ owner, rules });
    return owners;
  }

  #keptInstalled(): Map<string, InstalledRules> {
    return new Map(this.#keptOwners().map(({ owner, rules }) => [owner, rules]));
  }

  #staleChains(): string[] {
    const needed = new Set<string>();
    for (const rules of this.#kept.values()) for (const chain of rules?.ownChains.split("\n") ?? []) needed.add(chain);
    return this.#full.staleChains.filter((chain) => !needed.has(chain) && !this.#failures.has(staleChainOwner(chain)));
  }

  async #savedRules(): Promise<SavedRules> {
    this.#saved ??= new SavedRules(await this.#iptables.save("filter"), await this.#iptables.save("nat"));
    return this.#saved;
  }
}
