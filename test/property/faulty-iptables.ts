/** The in-memory kernel with faults: it refuses the rules of one service, as a broken match or a full table would. */
import { type Iptables, IptablesRestoreError, type IptablesTable } from "../../src/kernel/iptables/iptables.ts";
import type { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import { storedRule } from "../../testkit/fakes/iptables/memory-restore.ts";

/** Rules that are refused from now on. What the kernel already has stays. */
export interface Refusal {
  /** `namespace/name` */
  readonly service: string;
  readonly table: "filter" | "nat";
  /**
   * `new`: rules that the kernel did not have when the fault began. `any`: every line with the name, as a filter in front
   * of the tool would, even where rules that it has are only written again.
   */
  readonly extent: "new" | "any";
  /** Whether the tool says which line it was. */
  readonly namesLine: boolean;
}

export class FaultyIptables implements Iptables {
  readonly kernel: MemoryIptables;
  readonly #refusals = new Map<Refusal, ReadonlySet<string>>();

  constructor(kernel: MemoryIptables) {
    this.kernel = kernel;
  }

  get refusals(): readonly Refusal[] {
    return [...this.#refusals.keys()];
  }

  refuse(refusal: Refusal): void {
    this.#refusals.set(refusal, new Set(refusal.extent === "any" ? [] : this.kernel.dump(refusal.table).split("\n")));
  }

  heal(): void {
    this.#refusals.clear();
  }

  get family() {
    return this.kernel.family;
  }
  get prefersSmallTransactions() {
    return this.kernel.prefersSmallTransactions;
  }
  chainNames(table: IptablesTable) {
    return this.kernel.chainNames(table);
  }
  chainUses(table: IptablesTable) {
    return this.kernel.chainUses(table);
  }
  ruleCount(table: IptablesTable, chain: string) {
    return this.kernel.ruleCount(table, chain);
  }
  generation() {
    return this.kernel.generation();
  }
  ensureChain(table: IptablesTable, chain: string) {
    return this.kernel.ensureChain(table, chain);
  }
  chainPresence(table: IptablesTable, chain: string) {
    return this.kernel.chainPresence(table, chain);
  }
  deleteChain(table: IptablesTable, chain: string) {
    return this.kernel.deleteChain(table, chain);
  }
  ensureRule(table: IptablesTable, chain: string, args: readonly string[]) {
    return this.kernel.ensureRule(table, chain, args);
  }
  rulePresence(table: IptablesTable, chain: string, args: readonly string[]) {
    return this.kernel.rulePresence(table, chain, args);
  }
  deleteRule(table: IptablesTable, chain: string, args: readonly string[]) {
    return this.kernel.deleteRule(table, chain, args);
  }
  save(table: IptablesTable) {
    return this.kernel.save(table);
  }

  /** Table by table, as the tools do: what comes before the refused table stays. */
  async restore(payload: Iterable<string>, options: { readonly table?: IptablesTable } = {}): Promise<void> {
    const lines = [...payload].join("").split("\n");
    let start = 0;
    for (let end = lines.indexOf("COMMIT"); end >= 0; end = lines.indexOf("COMMIT", start)) {
      const table = lines.slice(start, end + 1);
      const refused = this.#refusedLine(table);
      if (refused !== undefined) {
        const line = start + refused.line;
        const output = refused.namesLine ? `iptables-restore: line ${line} failed` : "iptables-restore: failed";
        throw new IptablesRestoreError("failed", "iptables-restore", 1, output, refused.namesLine ? line : undefined);
      }
      try {
        await this.kernel.restore([`${table.join("\n")}\n`], options);
      } catch (error) {
        if (!(error instanceof IptablesRestoreError) || error.line === undefined) throw error;
        const { code, status, output, line } = error;
        throw new IptablesRestoreError(code, "iptables-restore", status, output, start + line);
      }
      start = end + 1;
    }
  }

  #refusedLine(table: readonly string[]): { line: number; namesLine: boolean } | undefined {
    for (const [{ service, table: of, extent, namesLine }, had] of this.#refusals) {
      if (table[0] !== `*${of}`) continue;
      const isFree = (line: string) =>
        extent === "new" && (line.startsWith("-D ") || had.has(this.#asSaved(line.replace(/^-I /, "-A "))));
      const index = table.findIndex((line) => isOf(line, service) && !isFree(line));
      if (index >= 0) return { line: index + 1, namesLine };
    }
    return undefined;
  }

  /** The rule as the kernel prints it. */
  #asSaved(line: string): string {
    const [, chain = "", text = ""] = /^-A (\S+) (.*)$/.exec(line) ?? [];
    return text === "" ? line : `-A ${chain} ${storedRule(text, this.family).text}`;
  }
}

/** Whether the comment of the line names a port of the service. */
function isOf(line: string, service: string): boolean {
  const at = line.indexOf(service);
  return at >= 0 && /^[: "]|^$/.test(line.slice(at + service.length, at + service.length + 1));
}
