/** What the engine's `--trace-gc` lines say about allocation. */

/** `[pid:isolate] time ms: Kind before (total) -> after (total) MB, pooled: n MB, pause / …` */
const COLLECTION =
  /^\[\d+:(\w+)\].*? ([\d.]+) \([\d.]+\) -> ([\d.]+) \([\d.]+\) MB, (?:pooled: [\d.]+ MB, )?([\d.]+) \//;

export class GcTrace {
  #rest = "";
  /** By isolate: worker threads have heaps of their own. */
  readonly #afterMb = new Map<string, number>();
  /** Megabytes allocated between the first collection that was seen and the last. */
  allocatedMb = 0;
  /** Milliseconds of pauses. */
  pauseMs = 0;
  collections = 0;

  /** Takes standard output as it comes. */
  push(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#take(line);
  }

  #take(line: string): void {
    const [matched, isolate = "", before, after, pause] = COLLECTION.exec(line) ?? [];
    if (matched === undefined) return;
    const lastMb = this.#afterMb.get(isolate);
    if (lastMb !== undefined) this.allocatedMb += Math.max(0, Number(before) - lastMb);
    this.#afterMb.set(isolate, Number(after));
    this.pauseMs += Number(pause);
    this.collections++;
  }
}
