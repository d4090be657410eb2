/**
 * The state of one table as a kernel would keep it: chains, rules, sets and elements that refer to each other, changed
 * by operations that the kernel would accept; others are rejected. Every step can be undone, so that a transaction is
 * all or nothing. Errors and their order were observed on kernel 6.18.
 */
import { NftError, type NftErrorCode, type NftOperation } from "../../../src/kernel/nftables/nftables.ts";
import { ruleDigest } from "../../../src/kernel/nftables/rule-digest.ts";
import {
  elementKey,
  equalTargets,
  equalVerdicts,
  type NftElement,
  type NftHook,
  type NftRule,
  type NftSet,
  type NftValue,
  type NftVerdict,
} from "../../../src/kernel/nftables/ruleset.ts";

export interface MemoryRule {
  readonly rule: NftRule;
  /** Undefined for rules that another program wrote. */
  readonly digest: string | undefined;
}

export interface MemoryChain {
  readonly name: string;
  hook: NftHook | undefined;
  readonly comment: string | undefined;
  readonly rules: MemoryRule[];
  /** Number of rules and elements that go here. */
  uses: number;
}

export interface MemorySet {
  set: NftSet;
  readonly elements: Map<string, NftElement>;
  /** Addresses that packets have added or, for a map, the elements by key. */
  readonly packetEntries: Map<string, NftElement>;
  /** Number of rules that look up here. */
  uses: number;
}

type Undo = () => void;
type RuleToAdd = Extract<NftOperation, { kind: "add-rule" }>;

export class MemoryTable {
  exists = false;
  comment = "";
  isDormant = false;
  chains = new Map<string, MemoryChain>();
  sets = new Map<string, MemorySet>();
  /** How many rules name each counter. */
  counters = new Map<string, number>();
  readonly #undo: Undo[] = [];
  /** Kernels before 6.2 release the references of deleted elements only some time after the transaction. */
  readonly #releasesLate: boolean;
  #unreleased: MemoryChain[] = [];

  constructor(releasesLate: boolean) {
    this.#releasesLate = releasesLate;
  }

  /** Carries out one operation. @throws NftError naming `index` if the kernel would reject it. */
  apply(operation: NftOperation, index: number, writesDigests: boolean): void {
    const refuse = (code: NftErrorCode, why: string): never => {
      throw new NftError(code, `${operation.kind}: ${why}`, index);
    };
    if (operation.kind === "add-table") {
      if (!this.exists) this.#change(() => this.#swap(true, operation.comment));
      this.#setDormant(operation.isDormant ?? false);
      return;
    }
    if (!this.exists) refuse("not_found", "there is no table");
    switch (operation.kind) {
      case "delete-table":
        this.#change(() => this.#swap(false, ""));
        break;
      case "add-chain":
        this.#addChain(operation.chain, refuse);
        break;
      case "flush-chain":
        this.#flushChain(this.#chain(operation.chain, refuse));
        break;
      case "delete-chain":
        this.#deleteChain(this.#chain(operation.chain, refuse), refuse);
        break;
      case "add-rule":
        this.#addRule(this.#chain(operation.chain, refuse), operation, writesDigests, refuse);
        break;
      case "add-counter":
        this.#addCounter(operation.counter);
        break;
      case "delete-counter":
        this.#deleteCounter(operation.counter, refuse);
        break;
      case "add-set":
        this.#addSet(operation.set, refuse);
        break;
      case "flush-set":
        this.#flushSet(this.#set(operation.set.name, refuse));
        break;
      case "delete-set":
        this.#deleteSet(this.#set(operation.set, refuse), refuse);
        break;
      case "add-elements": {
        const target = this.#set(operation.set.name, refuse);
        for (const element of operation.elements) this.#addElement(target, element, refuse);
        break;
      }
      case "delete-elements": {
        const target = this.#set(operation.set.name, refuse);
        for (const key of operation.keys) this.#deleteElement(target, key, refuse);
        break;
      }
    }
  }

  /** Keeps what was applied since the last call. */
  commit(): void {
    this.#undo.length = 0;
  }

  /** Undoes what was applied since the last {@link MemoryTable.commit}. */
  rollBack(): void {
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) undo();
  }

  /** Renames a chain: what goes to it still does. @throws NftError as the kernel does. */
  renameChain(from: string, to: string): void {
    const chain = this.chains.get(from);
    if (chain === undefined) throw new NftError("not_found", `there is no chain ${from}`, undefined);
    if (this.chains.has(to)) throw new NftError("exists", `there is a chain ${to}`, undefined);
    this.chains.delete(from);
    const other = { ...chain, name: to };
    this.chains.set(to, other);
    this.#unreleased = this.#unreleased.map((one) => (one === chain ? other : one));
    const renamed = <T>(value: T): T =>
      JSON.parse(JSON.stringify(value, (key, text) => (key === "chain" && text === from ? to : text)));
    for (const { rules } of this.chains.values()) {
      for (const [index, { rule, digest }] of rules.entries()) rules[index] = { rule: renamed(rule), digest };
    }
    for (const { elements } of this.sets.values()) {
      for (const [key, element] of elements) if (element.verdict !== undefined) elements.set(key, renamed(element));
    }
  }

  /** The time has passed after which an old kernel releases the references of deleted elements. */
  releaseReferences(): void {
    for (const chain of this.#unreleased) chain.uses -= 1;
    this.#unreleased = [];
  }

  /** Runs a step that returns its inverse. */
  #change(step: () => Undo): void {
    this.#undo.push(step());
  }

  #swap(exists: boolean, comment: string): Undo {
    const { exists: existed, comment: said, isDormant, chains, sets, counters } = this;
    const before = { exists: existed, comment: said, isDormant, chains, sets, counters };
    Object.assign(this, { exists, comment, isDormant: false, chains: new Map(), sets: new Map(), counters: new Map() });
    return () => void Object.assign(this, before);
  }

  #setDormant(isDormant: boolean): void {
    this.#change(() => {
      const before = this.isDormant;
      this.isDormant = isDormant;
      return () => {
        this.isDormant = before;
      };
    });
  }

  #chain(name: string, refuse: Refuse): MemoryChain {
    return this.chains.get(name) ?? refuse("not_found", `there is no chain ${name}`);
  }

  #set(name: string, refuse: Refuse): MemorySet {
    return this.sets.get(name) ?? refuse("not_found", `there is no set ${name}`);
  }

  #addChain(head: { name: string; hook?: NftHook; comment?: string }, refuse: Refuse): void {
    const { name, hook, comment } = head;
    const present = this.chains.get(name);
    if (present !== undefined) {
      if (hook === undefined) return;
      const { hook: known } = present;
      if (known?.type !== hook.type) refuse("exists", `${name} is of another type`);
      if (known?.hook !== hook.hook || known.priority !== hook.priority) {
        refuse("unsupported", `${name} is at another hook or priority`);
      }
      this.#change(() => {
        present.hook = hook;
        return () => {
          present.hook = known;
        };
      });
      return;
    }
    this.#change(() => {
      this.chains.set(name, { name, hook, comment, rules: [], uses: 0 });
      return () => this.chains.delete(name);
    });
  }

  #flushChain(chain: MemoryChain): void {
    this.#change(() => {
      const rules = chain.rules.splice(0);
      for (const { rule } of rules) this.#count(rule, -1);
      return () => {
        chain.rules.push(...rules);
        for (const { rule } of rules) this.#count(rule, 1);
      };
    });
  }

  #deleteChain(chain: MemoryChain, refuse: Refuse): void {
    if (chain.rules.length > 0) refuse("busy", `${chain.name} has rules`);
    if (chain.uses > 0) refuse("busy", `something goes to ${chain.name}`);
    this.#change(() => {
      this.chains.delete(chain.name);
      return () => this.chains.set(chain.name, chain);
    });
  }

  #addRule(chain: MemoryChain, { rule, digest }: RuleToAdd, writesDigests: boolean, refuse: Refuse): void {
    for (const { name, values } of setsOf(rule)) {
      const { set } = this.#set(name, refuse);
      if (values !== undefined && valuesOf(set) !== values) refuse("failed", `${name} has no ${values}`);
    }
    for (const name of countersOf(rule))
      if (!this.counters.has(name)) refuse("not_found", `there is no counter ${name}`);
    for (const verdict of verdictsOf(rule)) this.#checkVerdict(verdict, refuse);
    this.#change(() => {
      chain.rules.push({ rule, digest: writesDigests ? (digest ?? ruleDigest(rule)) : undefined });
      this.#count(rule, 1);
      return () => {
        chain.rules.pop();
        this.#count(rule, -1);
      };
    });
  }

  #addCounter(name: string): void {
    if (this.counters.has(name)) return;
    this.#change(() => {
      this.counters.set(name, 0);
      return () => this.counters.delete(name);
    });
  }

  #deleteCounter(name: string, refuse: Refuse): void {
    const uses = this.counters.get(name) ?? refuse("not_found", `there is no counter ${name}`);
    if (uses > 0) refuse("busy", `rules name ${name}`);
    this.#change(() => {
      this.counters.delete(name);
      return () => this.counters.set(name, uses);
    });
  }

  #addSet(set: NftSet, refuse: Refuse): void {
    const present = this.sets.get(set.name);
    if (present === undefined) {
      this.#change(() => {
        this.sets.set(set.name, { set, elements: new Map(), packetEntries: new Map(), uses: 0 });
        return () => this.sets.delete(set.name);
      });
      return;
    }
    const { set: known } = present;
    const isDynamic = (one: NftSet) => one.timeoutSeconds !== undefined;
    const isOfOneType =
      valuesOf(known) === valuesOf(set) && known.key.join() === set.key.join() && isDynamic(known) === isDynamic(set);
    if (!isOfOneType) {
      refuse("exists", `${set.name} is of another type`);
    }
    this.#change(() => {
      // Everything else, such as its comment, stays as it was created.
      const { timeoutSeconds } = set;
      present.set = timeoutSeconds === undefined ? known : { ...known, timeoutSeconds };
      return () => {
        present.set = known;
      };
    });
  }

  #flushSet(target: MemorySet): void {
    for (const element of [...target.elements.values()]) this.#removeElement(target, element);
    this.#change(() => {
      const entries = [...target.packetEntries];
      target.packetEntries.clear();
      return () => {
        for (const [key, entry] of entries) target.packetEntries.set(key, entry);
      };
    });
  }

  #deleteSet(target: MemorySet, refuse: Refuse): void {
    const { name } = target.set;
    if (target.uses > 0) refuse("busy", `rules look into ${name}`);
    for (const element of [...target.elements.values()]) this.#removeElement(target, element);
    this.#change(() => {
      this.sets.delete(name);
      return () => this.sets.set(name, target);
    });
  }

  #addElement(target: MemorySet, element: NftElement, refuse: Refuse): void {
    const { set, elements } = target;
    const { key, verdict, target: to } = element;
    const id = elementKey(key);
    if (key.length !== set.key.length && key.length !== 0) refuse("failed", `${id} is no key of ${set.name}`);
    if (set.isMap !== (verdict !== undefined))
      refuse("failed", `${set.name} { ${id} }: a map needs verdicts, a set none`);
    if ((set.hasTargets === true) !== (to !== undefined)) {
      refuse("failed", `${set.name} { ${id} }: a map to targets needs one, a set none`);
    }
    if (verdict !== undefined) this.#checkVerdict(verdict, refuse);
    const present = elements.get(id);
    if (present !== undefined) {
      const isSame = equalVerdicts(present.verdict, verdict) && equalTargets(present.target, to);
      if (!isSame) refuse("exists", `${set.name} has ${id} with another value`);
      return;
    }
    this.#change(() => {
      elements.set(id, element);
      this.#countVerdict(verdict, 1);
      return () => {
        elements.delete(id);
        this.#countVerdict(verdict, -1);
      };
    });
  }

  #deleteElement(target: MemorySet, key: readonly NftValue[], refuse: Refuse): void {
    const id = elementKey(key);
    const entry = target.packetEntries.get(id);
    if (entry !== undefined) {
      this.#change(() => {
        target.packetEntries.delete(id);
        return () => target.packetEntries.set(id, entry);
      });
      return;
    }
    const missing = () => refuse("not_found", `${target.set.name} has no ${id}`);
    this.#removeElement(target, target.elements.get(id) ?? missing());
  }

  #removeElement(target: MemorySet, element: NftElement): void {
    const id = elementKey(element.key);
    const { verdict } = element;
    this.#change(() => {
      target.elements.delete(id);
      const chain = verdict !== undefined && "chain" in verdict ? this.chains.get(verdict.chain) : undefined;
      if (chain !== undefined && this.#releasesLate) this.#unreleased.push(chain);
      else this.#countVerdict(verdict, -1);
      return () => {
        target.elements.set(id, element);
        if (chain !== undefined && this.#releasesLate) this.#unreleased.pop();
        else this.#countVerdict(verdict, 1);
      };
    });
  }

  #checkVerdict(verdict: NftVerdict, refuse: Refuse): void {
    if (!("chain" in verdict)) return;
    const chain = this.#chain(verdict.chain, refuse);
    if (chain.hook !== undefined) refuse("unsupported", `${verdict.chain} is a base chain`);
  }

  #count(rule: NftRule, by: 1 | -1): void {
    for (const { name } of setsOf(rule)) {
      const target = this.sets.get(name);
      if (target !== undefined) target.uses += by;
    }
    for (const name of countersOf(rule)) this.counters.set(name, (this.counters.get(name) ?? 0) + by);
    for (const verdict of verdictsOf(rule)) this.#countVerdict(verdict, by);
  }

  #countVerdict(verdict: NftVerdict | undefined, by: 1 | -1): void {
    if (verdict === undefined || !("chain" in verdict)) return;
    const chain = this.chains.get(verdict.chain);
    if (chain !== undefined) chain.uses += by;
  }
}

type Refuse = (code: NftErrorCode, why: string) => never;

type MapValues = "verdicts" | "targets";

interface SetUse {
  readonly name: string;
  /** The values that the map must have; undefined for a set. */
  readonly values: MapValues | undefined;
}

function valuesOf({ isMap, hasTargets }: NftSet): MapValues | undefined {
  if (isMap) return "verdicts";
  return hasTargets === true ? "targets" : undefined;
}

/** Sets and maps that a rule looks up or fills. */
function setsOf(rule: NftRule): SetUse[] {
  return rule.statements.flatMap((statement): SetUse[] => {
    switch (statement.kind) {
      case "lookup":
      case "update":
        return [{ name: statement.set, values: undefined }];
      case "vmap":
        return [{ name: statement.map, values: "verdicts" }];
      case "map-dnat":
      case "update-map":
        return [{ name: statement.map, values: "targets" }];
      default:
        return [];
    }
  });
}

function countersOf(rule: NftRule): string[] {
  return rule.statements.flatMap((statement) => (statement.kind === "counter" ? [statement.name] : []));
}

function verdictsOf(rule: NftRule): NftVerdict[] {
  return rule.statements.flatMap((statement): readonly NftVerdict[] => {
    if (statement.kind === "verdict") return [statement.verdict];
    return statement.kind === "random-vmap" ? statement.verdicts : [];
  });
}
