/** Compares what is wanted on a node with the output of its tools: differences, each with its service ports. */

import { compareInventories, type Difference } from "../../contract/inspect/dumps/compare.ts";
import type { DumpKind, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import { declaredFrontends } from "../../model/frontend.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import { safe } from "./safe-text.ts";

/** A difference, and the service ports it concerns. */
export interface OwnedDifference extends Difference {
  /** `namespace/name:port`; empty if it concerns all, or no known one. */
  readonly servicePorts: readonly string[];
}

/** @param owners the cluster whose names and addresses tell which service port a line belongs to. */
export function diffInventories(
  wanted: ReadonlyMap<DumpKind, Inventory>,
  found: ReadonlyMap<DumpKind, Inventory>,
  owners: ExplainedCluster,
): OwnedDifference[] {
  const [first] = owners.families;
  const families = owners.families.map(({ node }) => node.family);
  const ownership = first?.inspection.comparison?.ownership(families, owners.config);
  if (ownership === undefined) return [];
  const differences = [...found].flatMap(([kind, inventory]) => {
    const own = wanted.get(kind);
    return own === undefined ? [] : compareInventories(own, inventory, ownership);
  });
  // The names of 10,000 Services take time, and usually there are no differences.
  if (differences.length === 0) return [];
  const ownersOf = lineOwners(owners);
  return differences.map((difference) => ({ ...difference, servicePorts: ownersOf(difference) }));
}

/** The words of a comparison: with the kernel, or between two plans. */
interface DifferenceWords {
  readonly states: Readonly<Record<Difference["state"], string>>;
  readonly missing: string;
  readonly extra: string;
}

export const KERNEL_WORDS: DifferenceWords = {
  states: {
    missing: "is missing",
    extra: "is there, and should not be",
    changed: "is not as it should be",
    moved: "has the right lines in a wrong order",
  },
  missing: "missing:",
  extra: "extra:",
};

export const PLAN_WORDS: DifferenceWords = {
  states: { missing: "is new", extra: "is gone", changed: "changes", moved: "changes its order" },
  missing: "+",
  extra: "-",
};

/** The differences as text for people. */
export function differencesText(differences: readonly OwnedDifference[], words: DifferenceWords): string {
  let text = "";
  for (const { state, kind, place, name, missing, extra, servicePorts } of differences) {
    const whose = servicePorts.length === 0 ? "" : ` (${servicePorts.join(", ")})`;
    text += `${kind} ${name} in ${place}${whose} ${words.states[state]}\n`;
    for (const line of extra) text += `  ${words.extra} ${line}\n`;
    for (const line of missing) text += `  ${words.missing} ${line}\n`;
  }
  return safe(text);
}

/** The name of a chain or set that iptables or nftables mode makes for a single service port. */
const OWN_NAME =
  /\b(?:KUBE-(?:SVC|SVL|SEP|FW|EXT)-[A-Z2-7]{16}|(?:service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[^\s,}]+)/g;
/** Old releases print a port without a name as `shop/web:`. */
const COMMENT = /(?:"|--comment )(?:[a-zA-Z ]+ for )?([a-z0-9-]+\/[a-z0-9-]+(?::[a-z0-9-]+)?):?(?=["\s]|$)/;

/** The service port that the comment of a rule or an element names: `shop/web:http`. */
export function ownerInComment(line: string): string | undefined {
  return COMMENT.exec(line)?.[1];
}

/** Finds the service ports that a difference concerns (`namespace/name:port`), by the names, addresses and comments in its lines. */
function lineOwners({ families }: ExplainedCluster): (difference: Difference) => readonly string[] {
  const names = new Map<string, string>();
  /** Owners by address, protocol and port, and by address alone. */
  const places = new Map<string, Set<string>>();
  const note = (place: string, owner: string) => places.set(place, (places.get(place) ?? new Set<string>()).add(owner));
  for (const { inspection, node } of families) {
    for (const [key, port] of node.state.services) {
      const { text } = port.name;
      const endpoints = node.state.endpoints.get(key) ?? [];
      for (const { name } of inspection.namesOf(port, endpoints)) names.set(name, text);
      for (const { address = "", port: number } of declaredFrontends(port)) {
        note(placeText(address, port.protocol, number), text);
        if (address !== "") note(address, text);
      }
      for (const { ip, port: number } of endpoints) note(placeText(ip, port.protocol, number), text);
    }
  }
  const ownersOfLine = (line: string): Iterable<string> => {
    for (const [name] of line.matchAll(OWN_NAME)) {
      const owner = names.get(name);
      if (owner !== undefined) return [owner];
    }
    const said = ownerInComment(line);
    if (said !== undefined) return [said];
    const place = placeOfEntry(line) ?? placeOfServer(line);
    // A virtual server at a node's address serves a node port.
    return places.get(place ?? line) ?? places.get(place?.replace(/^\S+/, "") ?? "") ?? [];
  };
  return ({ name, missing, extra }) => {
    const own = names.get(name);
    if (own !== undefined) return [own];
    const owners = new Set([name, ...missing, ...extra].flatMap((line) => [...ownersOfLine(line)]));
    // In nftables mode, the name of a chain tells which service port it belonged to, even if that is gone.
    const [, gone, port] = /^\w+-[A-Z2-7]{8}-([^/]+\/[^/]+)\/[^/]+\/([^_]*)/.exec(name) ?? [];
    return owners.size === 0 && gone !== undefined ? [port ? `${gone}:${port}` : gone] : [...owners].sort();
  };
}

function placeText(address: string, protocol: string, port: number | string): string {
  return `${address} ${protocol.toUpperCase()} ${port}`;
}

/** `10.96.0.10,tcp:80` of an IP set, `10.96.0.10 . tcp . 80` or `tcp . 30080` of an nftables set. */
function placeOfEntry(line: string): string | undefined {
  const [, address = "", protocol, port = ""] =
    /^([\da-f.:]+)(?:,| \. (?:[\da-f.:]+ \. )?)(tcp|udp|sctp)(?::| \. )(\d+)/.exec(line) ??
    /^()(tcp|udp|sctp) \. (\d+)/.exec(line) ??
    [];
  return protocol === undefined ? undefined : placeText(address, protocol, port);
}

/** `10.96.0.10:80/TCP`, the name of a virtual server. */
function placeOfServer(name: string): string | undefined {
  const [, bracketed, bare = "", port = "", protocol] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d+)\/(\w+)$/.exec(name) ?? [];
  return protocol === undefined ? undefined : placeText(bracketed ?? bare, protocol, port);
}
