/** Reads what `ipset save` and `ipvsadm -S -n` print. Pure. */
import { DumpError, type Inventory, InventoryDraft } from "./inventory.ts";

const IPSET = "ipset";
const IPVS = "ipvs";

/** @throws DumpError for a text that is something else. */
export function readIpsetSave(text: string): Inventory {
  const draft = new InventoryDraft();
  draft.place(IPSET);
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [, verb, name = "", rest = ""] = /^(create|add) (\S+) (\S+)/.exec(line) ?? [];
    if (verb === "create") draft.hold({ kind: "set", place: IPSET, name, isOrdered: false });
    // Sizes of the hash table differ from kernel to kernel; the type does not.
    if (verb === "create") draft.add(IPSET, name, `type ${rest}`);
    else if (verb === undefined || !draft.add(IPSET, name, rest)) {
      throw new DumpError(
        `line ${index + 1}: ${verb === undefined ? "this is not what ipset save prints" : `set ${name} is not created`}`,
      );
    }
  }
  return draft.finish("ipset");
}

const OPTION = "(?:-t|-u|--tcp-service|--udp-service|--sctp-service)";
const VIRTUAL = new RegExp(String.raw`^-A (${OPTION}) (\S+)(.*)$`);
const REAL = new RegExp(String.raw`^-a (${OPTION}) (\S+) -r (\S+)(.*)$`);

/** @throws DumpError for a text that is something else. */
export function readIpvsadmSave(text: string): Inventory {
  const draft = new InventoryDraft();
  draft.place(IPVS);
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.startsWith("#")) continue;
    const [, option, address = "", rest = ""] = VIRTUAL.exec(line) ?? [];
    if (option !== undefined) {
      const name = virtualServerName(option, address);
      draft.hold({ kind: "virtual server", place: IPVS, name, isOrdered: false });
      draft.add(IPVS, name, rest.trim());
      continue;
    }
    const [, realOption = "", realAddress = "", endpoint, settings = ""] = REAL.exec(line) ?? [];
    // A server of weight 0 takes nothing new: it keeps the connections of an endpoint that is gone.
    if (endpoint !== undefined && / -w 0\b/.test(settings)) continue;
    if (
      endpoint === undefined ||
      !draft.add(IPVS, virtualServerName(realOption, realAddress), `real server ${endpoint}`)
    ) {
      throw new DumpError(`line ${index + 1}: this is not what ipvsadm -S -n prints`);
    }
  }
  return draft.finish("ipvsadm");
}

/** `10.96.0.10:80/TCP`: as the program itself names one. */
function virtualServerName(option: string, address: string): string {
  const protocol = /^-t|tcp/.test(option) ? "TCP" : /^-u|udp/.test(option) ? "UDP" : "SCTP";
  return `${address}/${protocol}`;
}
