/** Tells what printed a dump, and reads it. Pure. */
import type { IpFamily } from "../../net/ip.ts";
import { DumpError, type DumpKind, type Inventory } from "./inventory.ts";
import { readIptablesSave, savedFamily } from "./iptables-save.ts";
import { readIpsetSave, readIpvsadmSave } from "./ipvs-save.ts";
import { readNftList } from "./nft-list.ts";

/** What printed a text; undefined for something else. */
export function dumpKind(text: string): DumpKind | undefined {
  if (/^\*(?:nat|filter|mangle|raw|security)$/m.test(text)) return "iptables-save";
  if (/^table \S+ \S+ \{/m.test(text)) return "nft";
  if (/^create \S+ \S+/m.test(text)) return "ipset";
  return /^-A (?:-t|-u|--\w+-service) /m.test(text) ? "ipvsadm" : undefined;
}

interface DumpChoices {
  /** Of an iptables dump that does not tell its family itself. */
  readonly family: IpFamily | undefined;
  /** The name of this program's nftables tables. */
  readonly table: string;
}

/** @throws DumpError for a text that none of the tools has printed, or that is cut. */
export function readDump(given: string, { family, table }: DumpChoices): Inventory {
  const text = given.replaceAll("\r\n", "\n");
  switch (dumpKind(text)) {
    case "iptables-save": {
      const known = savedFamily(text) ?? family;
      if (known === undefined)
        throw new DumpError("it does not tell whether it is of iptables or ip6tables: add --family");
      return readIptablesSave(text, known);
    }
    case "nft":
      return readNftList(text, table);
    case "ipset":
      return readIpsetSave(text);
    case "ipvsadm":
      return readIpvsadmSave(text);
    case undefined:
      throw new DumpError("it is not what iptables-save, nft list, ipset save or ipvsadm -S -n print");
  }
}
