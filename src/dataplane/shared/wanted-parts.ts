/**
 * What all service ports together want of the kernel, as parts of several kinds (a virtual server, an address, a load balancer), each
 * with a key and the service ports that want it; kept up to date port by port. No I/O.
 */
import { KeyOwners } from "./key-owners.ts";

/** What one service port wants, by kind. */
export type Parts<Kinds> = { readonly [K in keyof Kinds]?: readonly (readonly [key: string, value: Kinds[K]])[] };

/** By service or service port, as the mode counts them: a Local policy, endpoints somewhere and none here. */
export interface LocalKinds {
  readonly lacksInternal: true;
  readonly lacksExternal: true;
}

const NONE = [] as const;

export class WantedParts<Kinds extends LocalKinds> {
  /** By kind. */
  readonly of: { readonly [K in keyof Kinds]: KeyOwners<Kinds[K]> };
  readonly #kinds: readonly (keyof Kinds)[];
  readonly #byOwner = new Map<string, Parts<Kinds>>();

  /** @param own the kinds of the mode alone. */
  constructor(own: Omit<WantedParts<Kinds>["of"], keyof LocalKinds>) {
    const local = { lacksInternal: new KeyOwners<true>(), lacksExternal: new KeyOwners<true>() };
    this.of = { ...own, ...local } as WantedParts<Kinds>["of"]; // together all kinds
    this.#kinds = Object.keys(this.of) as (keyof Kinds)[]; // it is made of nothing else
  }

  /** What a service port wants. */
  by(owner: string): Parts<Kinds> {
    return this.#byOwner.get(owner) ?? {};
  }

  /** From now on every kind tells what has changed ({@link KeyOwners.touched}). */
  track(): void {
    for (const kind of this.#kinds) this.of[kind].track();
  }

  /** Notes what a service port wants from now on; undefined: nothing. */
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
