/**
 * What all service ports together want in the kernel, as parts of several kinds (virtual servers, addresses, load
 * balancers). Each part has a key and the service ports that want it; updated port by port. No I/O.
 */
import type { KeyOwners } from "../../model/key-owners.ts";

/** What one service port wants, by kind. */
export type Parts<Kinds> = { readonly [K in keyof Kinds]?: readonly (readonly [key: string, value: Kinds[K]])[] };

const NONE = [] as const;

export class WantedParts<Kinds> {
  readonly of: { readonly [K in keyof Kinds]: KeyOwners<Kinds[K]> };
  readonly #kinds: readonly (keyof Kinds)[];
  readonly #byOwner = new Map<string, Parts<Kinds>>();

  constructor(of: WantedParts<Kinds>["of"]) {
    this.of = of;
    this.#kinds = Object.keys(this.of) as (keyof Kinds)[]; // it is made of nothing else
  }

  /** What a service port wants. */
  by(owner: string): Parts<Kinds> {
    return this.#byOwner.get(owner) ?? {};
  }

  /** Starts recording changes of every kind ({@link KeyOwners.touched}). */
  track(): void {
    for (const kind of this.#kinds) this.of[kind].track();
  }

  /** Sets what a service port wants; undefined: nothing. */
  put(owner: string, parts: Parts<Kinds> | undefined): void {
    const before = this.by(owner);
    if (parts === undefined) this.#byOwner.delete(owner);
    else this.#byOwner.set(owner, parts);
    for (const kind of this.#kinds) this.#replace(kind, owner, before, parts ?? {});
  }

  #replace<K extends keyof Kinds>(kind: K, owner: string, before: Parts<Kinds>, after: Parts<Kinds>): void {
    const [old, now] = [before[kind] ?? NONE, after[kind] ?? NONE];
    if (old.length + now.length > 0) this.of[kind].replace(owner, old, now);
  }
}
