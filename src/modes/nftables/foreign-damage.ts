/** What changes by other programs mean for our rules. */
import type { Clock } from "../../async/clock.ts";
import type { NftForeignChange } from "../../kernel/nftables/nftables.ts";
import { KUBE_PROXY } from "../../kernel/process-of-thread.ts";
import type { Logger } from "../../logging/logger.ts";
import { someOf } from "../../logging/some-of.ts";
import { isOurChain, sharedSetOfAny } from "./layouts.ts";
import { isAffinitySet, isOfServicePort, ownerIn } from "./names.ts";
import type { InstalledPort } from "./port-objects.ts";

/** Damage to known chains and sets, or to anything. */
type ForeignDamage =
  | {
      readonly kind: "known";
      /** Service ports that own a damaged chain or affinity set. */
      readonly ports: ReadonlySet<string>;
      /** Names of all damaged chains and sets, of service ports and shared ones. */
      readonly names: ReadonlySet<string>;
    }
  | { readonly kind: "total" }
  /** A chain of an unknown name appeared: one of ours may have been renamed. */
  | { readonly kind: "unknown" };

/** Undefined if nothing of ours changed; other programs may keep their own chains and sets in the table. */
export function assessDamage(
  change: NftForeignChange,
  installed: ReadonlyMap<string, InstalledPort>,
): ForeignDamage | undefined {
  if (change.isTotal) return { kind: "total" };
  const chains = [...change.chains];
  const isOurSet = (set: string) => isAffinitySet(set) || sharedSetOfAny(set) !== undefined;
  const names = new Set([...chains.filter(isOurChain), ...[...change.sets].filter(isOurSet)]);
  const isUnknown = chains.some((chain) => change.defined.has(chain) && !isOurChain(chain));
  if (names.size === 0) return isUnknown ? { kind: "unknown" } : undefined;
  // Recreated objects may be of another kind.
  if (isUnknown || [...names].some((name) => change.defined.has(name))) return { kind: "total" };
  const ports = new Set<string>();
  for (const name of [...names].filter(isOfServicePort)) {
    const owner = ownerIn(name) ?? "";
    const port = installed.get(owner);
    // Objects with our names that no port owns must go.
    if (port?.chains.has(name) !== true && port?.affinitySets.has(name) !== true) return { kind: "total" };
    ports.add(owner);
  }
  return { kind: "known", ports, names };
}

/** Chains and sets that other programs changed and that are not repaired yet. */
export class OpenDamage {
  readonly names = new Set<string>();
  /** Generation of the latest commit that damaged any. */
  #generation = 0;
  /** Generation at the last read of the table. */
  #readIn: number | undefined;

  /** Hands over the damaged names and forgets them. */
  take(): ReadonlySet<string> {
    const names = new Set(this.names);
    this.names.clear();
    return names;
  }

  /** Adds names that could not be repaired. */
  add(names: Iterable<string>): void {
    for (const name of names) this.names.add(name);
  }

  /** Notes what a commit damaged. @returns false if a later read of the table has already shown it. */
  note(names: Iterable<string>, generation: number): boolean {
    if (this.#isRead(generation)) return false;
    this.add(names);
    this.#generation = generation;
    return true;
  }

  /** Notes a read of the table: it shows all damage up to this generation. */
  read(generation: number): void {
    this.#readIn = generation;
    if (this.#isRead(this.#generation)) this.names.clear();
  }

  /** Generations wrap. */
  #isRead(generation: number): boolean {
    return this.#readIn !== undefined && ((generation - this.#readIn) | 0) <= 0;
  }
}

/** Two programs that undo each other's changes do it many times a second: each text is a warning only once in this time. */
const QUIET_MS = 10_000;

/** Logs changes of our rules by other programs, and names another kube-proxy once. */
export class ForeignWarnings {
  readonly #log: Logger;
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #texts = new Set<string>();
  #sinceMs = 0;
  readonly #kubeProxies = new Set<number>();

  constructor(log: Logger, clock: Pick<Clock, "monotonicMs">) {
    this.#log = log;
    this.#clock = clock;
  }

  note({ chains, sets, isTotal, by }: NftForeignChange): void {
    const facts = { chains: someOf(chains), sets: someOf(sets), wholeTable: isTotal, pid: by?.pid, process: by?.name };
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs >= QUIET_MS) {
      this.#texts.clear();
      this.#sinceMs = nowMs;
    }
    const text = JSON.stringify(facts);
    const message = "Another program changed our nftables rules; repairing them";
    if (this.#texts.has(text)) this.#log.v(4, message, facts);
    else this.#log.warn(message, facts);
    this.#texts.add(text);
    if (by?.name !== KUBE_PROXY || this.#kubeProxies.has(by.pid)) return;
    this.#kubeProxies.add(by.pid);
    this.#log.warn("Another kube-proxy seems to write the same rules on this node; end one of the two", {
      pid: by.pid,
    });
  }
}
