/**
 * What a part of the kernel holds, as its tools print it: chains with rules, sets with elements, virtual servers with real servers.
 * The same for what is wanted (`kube-proxy render`) and for what is found (a dump), so that the two can be compared line by line.
 */

/** What prints a dump: `iptables-save` also stands for ip6tables-save, `nft` for `nft list table` and `nft list ruleset`. */
export type DumpKind = "iptables-save" | "nft" | "ipset" | "ipvsadm";

/** One thing with lines in it. */
export interface Holder {
  readonly kind: "chain" | "set" | "map" | "virtual server";
  /** `IPv4 nat`, `ip kube-proxy`, `ipset`, `ipvs`. */
  readonly place: string;
  readonly name: string;
  readonly lines: readonly string[];
  /** Whether the order of its lines matters to packets. */
  readonly isOrdered: boolean;
  /** It is one of the kernel's own chains, which other programs use as well. */
  readonly isBuiltIn: boolean;
  /** Packets add to it: no plan says what is in it. */
  readonly isDynamic: boolean;
}

export interface Inventory {
  readonly kind: DumpKind;
  /** The places that this dump tells all about. */
  readonly places: ReadonlySet<string>;
  /** By place and name. */
  readonly holders: ReadonlyMap<string, Holder>;
  /** Lines that the tool leaves out in the form at hand. */
  readonly unsaid?: RegExp;
}

/** A dump that cannot be read: the message says what is wrong with it, and where. */
export class DumpError extends Error {
  override readonly name = "DumpError";
}

/** Collects holders; a second one of the same name is an error of the dump. */
export class InventoryDraft {
  readonly #places = new Set<string>();
  readonly #holders = new Map<string, Holder & { readonly lines: string[] }>();

  place(name: string): void {
    this.#places.add(name);
  }

  /** @param holder without lines, unless they are known at once. */
  hold(holder: Pick<Holder, "kind" | "place" | "name" | "isOrdered"> & Partial<Holder>): void {
    const key = `${holder.place} ${holder.name}`;
    if (this.#holders.has(key)) throw new DumpError(`${holder.kind} ${holder.name} is there twice`);
    const { lines = [] } = holder;
    this.#holders.set(key, { isBuiltIn: false, isDynamic: false, ...holder, lines: [...lines] });
  }

  /** @returns whether the holder is there. */
  add(place: string, name: string, line: string): boolean {
    const holder = this.#holders.get(`${place} ${name}`);
    holder?.lines.push(line);
    return holder !== undefined;
  }

  finish(kind: DumpKind): Inventory {
    return { kind, places: this.#places, holders: this.#holders };
  }
}
