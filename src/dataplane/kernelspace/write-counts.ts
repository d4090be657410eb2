/** What a sync has written, for the journal. No I/O. */
type WriteKind =
  | "load balancers made"
  | "load balancers changed"
  | "load balancers deleted"
  | "endpoints made"
  | "endpoints deleted";

export class WriteCounts {
  #counts: Partial<Record<WriteKind, number>> = {};

  /** A sync begins. */
  begin(): void {
    this.#counts = {};
  }

  /** HNS has carried it out. */
  add(kind: WriteKind): void {
    this.#counts[kind] = (this.#counts[kind] ?? 0) + 1;
  }

  /** Since {@link begin}. */
  get counts(): Readonly<Record<string, number>> {
    return { ...this.#counts };
  }
}
