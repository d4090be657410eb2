/** Texts of dumps as inventories. Pure. */
import { isNftJson, readNftJson } from "../explain/nft-json.ts";
import { merged } from "../explain/wanted.ts";
import { DumpError, type DumpKind, type Inventory } from "../inspect/dumps/inventory.ts";
import { dumpKind, readDump } from "../inspect/dumps/read-dump.ts";
import { savesIn } from "../kernel/iptables/parser/ruleset.ts";
import type { IpFamily } from "../net/ip.ts";
import { UsageError } from "./exit.ts";

interface DumpSource {
  /** What was asked, where that is known: then nothing at all is an answer. */
  readonly kind: DumpKind | undefined;
  /** Of iptables where the text does not tell. */
  readonly family: IpFamily | undefined;
  /** The name of this program's nftables tables. */
  readonly table: string;
}

/** What a text of a tool is of. */
export const kindOfDump = (text: string): DumpKind | undefined => (isNftJson(text) ? "nft" : dumpKind(text));

/** A dump of which nothing is known but its text; tables of any kube-proxy. @throws UsageError */
export function inventoryIn(text: string, name: string): Inventory {
  return inventoryOf(name, text, { kind: kindOfDump(text), family: "IPv4", table: "kube-proxy" });
}

/** @param name of the dump, for errors. @throws UsageError */
export function inventoryOf(name: string, text: string, { kind, family, table }: DumpSource): Inventory {
  // Nothing at all is an answer of a tool that was asked, and none in a file.
  if (text.trim() === "" && kind !== undefined) return emptyInventory(kind, family, table);
  try {
    if (isNftJson(text)) return readNftJson(text, table);
    const parts: Inventory[] = [];
    let linesBefore = 0;
    for (const part of kind === "iptables-save" ? savesIn(text) : [text]) {
      // Lines keep their numbers.
      const inventory = readDump("\n".repeat(linesBefore) + part, { family, table });
      linesBefore += part.split("\n").length - 1;
      const place = [...inventory.places].find((one) => parts.some(({ places }) => places.has(one)));
      if (place !== undefined) throw new DumpError(`it has the table ${place} twice: give what one tool prints`);
      parts.push(inventory);
    }
    const [only] = parts;
    return only !== undefined && parts.length === 1 ? only : merged("iptables-save", parts);
  } catch (error) {
    if (error instanceof DumpError) throw new UsageError(`cannot read the dump in ${name}: ${error.message}`);
    throw error;
  }
}

function emptyInventory(kind: DumpKind, family: string | undefined, table: string): Inventory {
  const places: Readonly<Record<DumpKind, readonly string[]>> = {
    "iptables-save": [`${family} nat`, `${family} filter`],
    nft: [`${family === "IPv6" ? "ip6" : "ip"} ${table}`],
    ipset: ["ipset"],
    ipvsadm: ["ipvs"],
  };
  return { kind, places: new Set(places[kind]), holders: new Map() };
}
