/** What is made beforehand, in portions that each take the kernel little time (`preparation.ts`, `prepare-elements.ts`). */
import { isAttributable } from "./bisect-ports.ts";
import type { TransactionDraft } from "./draft.ts";

/**
 * How much processor time a portion should take the kernel, which on many machines runs nothing else on that processor
 * meanwhile, not even this process's health checks. On a busy machine a commit takes many times as long, which smaller portions
 * would only make worse.
 */
const PORTION_MS = 25;

/** Processor time that the kernel has spent for this process. */
function kernelMs(): number {
  return process.cpuUsage().system / 1000;
}

/** How many things a portion is made of. */
interface PortionSizes {
  readonly least: number;
  /** Also that of the first portion. */
  readonly most: number;
}

/** Commits portions in their order, of which one is planned and encoded while the kernel works on the one before. */
export class Portions {
  /** How many things the next should be made of. */
  size: number;
  /** Portions that the kernel did not take. */
  refused = 0;
  readonly #commit: (draft: TransactionDraft) => Promise<void>;
  readonly #sizes: PortionSizes;
  #underWay: Promise<void> = Promise.resolve();
  #endMs = 0;
  #eachMs: number | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(commit: (draft: TransactionDraft) => Promise<void>, sizes: PortionSizes) {
    this.#commit = commit;
    this.#sizes = sizes;
    this.size = sizes.most;
  }

  /** @param things it is made of. Resolves when the one before is done. @throws what is no operation's fault. */
  async commit(draft: TransactionDraft, things: number): Promise<void> {
    const before = this.#underWay;
    this.#underWay = this.#carryOut(draft, things);
    await before;
    this.throwIfFailed();
  }

  /** Resolves when none is under way any more; never rejects. */
  async done(): Promise<void> {
    await this.#underWay;
  }

  throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #carryOut(draft: TransactionDraft, things: number): Promise<void> {
    const startMs = kernelMs();
    try {
      await this.#commit(draft);
    } catch (error) {
      this.refused += 1;
      if (!isAttributable(error)) this.#failure ??= { error };
    }
    const endMs = kernelMs();
    const eachMs = (endMs - Math.max(startMs, this.#endMs)) / things;
    // Processor time is counted in ticks: a single portion may seem to have taken none.
    this.#eachMs = this.#eachMs === undefined ? eachMs : (this.#eachMs + eachMs) / 2;
    const { least, most } = this.#sizes;
    this.size = Math.min(Math.max(Math.round(PORTION_MS / this.#eachMs), least), most);
    this.#endMs = endMs;
  }
}
