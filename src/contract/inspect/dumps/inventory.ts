/**
 * The contents of a part of the kernel, as its tools print them: chains with rules, sets with elements, virtual servers with real
 * servers. Wanted (`kube-proxy render`) and found (a dump) contents have the same form, so they can be compared line by line.
 */
import { DumpError } from "../../../trace/dump/recognise.ts";

/** The tool that prints a dump: `iptables-save` includes ip6tables-save, `nft` is `nft list table` and `nft list ruleset`. */
export type DumpKind = "iptables-save" | "nft" | "ipset" | "ipvsadm";

/** A chain, set, map or virtual server, with its lines. */
export interface Holder {
  readonly kind: "chain" | "set" | "map" | "virtual server";
  /** `IPv4 nat`, `ip kube-proxy`, `ipset`, `ipvs`. */
  readonly place: string;
  readonly name: string;
  readonly lines: readonly string[];
  /** Whether the order of its lines matters to packets. */
  readonly isOrdered: boolean;
  /** Whether it is one of the kernel's own chains, which other programs use too. */
  readonly isBuiltIn: boolean;
  /** Whether packets add to it, so that no plan knows its contents. */
  readonly isDynamic: boolean;
}

export interface Inventory {
  readonly kind: DumpKind;
  /** The places that this dump covers completely. */
  readonly places: ReadonlySet<string>;
  /** By `place name`. */
  readonly holders: ReadonlyMap<string, Holder>;
  /** Matches lines that the tool leaves out in this form of output. */
  readonly unsaid?: RegExp;
  /** What its author has probably left out, in words. */
  readonly missing?: string;
}

/** Collects holders; a second one with the same name is an error in the dump. */
export class InventoryDraft {
  readonly #places = new Set<string>();
  readonly #holders = new Map<string, Holder & { readonly lines: string[] }>();

  place(name: string): void {
    this.#places.add(name);
  }

  /** @param holder may omit its lines, for {@link add} to add later. */
  hold(holder: Pick<Holder, "kind" | "place" | "name" | "isOrdered"> & Partial<Holder>): void {
    const key = `${holder.place} ${holder.name}`;
    if (this.#holders.has(key)) throw new DumpError(`${holder.kind} ${holder.name} is listed twice`);
    const { lines = [] } = holder;
    this.#holders.set(key, { isBuiltIn: false, isDynamic: false, ...holder, lines: [...lines] });
  }

  /** @returns whether the holder exists. */
  add(place: string, name: string, line: string): boolean {
    const holder = this.#holders.get(`${place} ${name}`);
    holder?.lines.push(line);
    return holder !== undefined;
  }

  finish(kind: DumpKind): Inventory {
    return { kind, places: this.#places, holders: this.#holders };
  }
}
