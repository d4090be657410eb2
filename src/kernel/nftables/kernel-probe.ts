/**
 * Checks at start that the kernel supports everything that the rules of a service proxy need. A missing part is then
 * reported at once, and not with the first Service that needs it.
 */
import { type IpAddress, parseCidr } from "../../net/ip.ts";
import type { NetlinkRuleset } from "./netlink-nftables.ts";
import { NftError, type NftOperation } from "./nftables.ts";
import type { NftFamily, NftHook, NftSet, NftStatement } from "./ruleset.ts";

/** A feature of nf_tables and the kernel module that provides it. */
interface Part {
  readonly what: string;
  readonly module: string;
  readonly operation: NftOperation;
}

const PROBE_TABLE = "kube-proxy-probe";
const ADDRESSES: NftSet = { name: "addresses", key: ["address"], isMap: false, comment: "a comment" };
const FRONT_ENDS: NftSet = { name: "front-ends", key: ["address", "protocol", "port"], isMap: true };
const CLIENTS: NftSet = { name: "clients", key: ["address"], isMap: false, timeoutSeconds: 10 };
const TARGETS: NftSet = {
  name: "targets",
  key: ["address", "protocol", "port", "slot"],
  isMap: false,
  hasTargets: true,
  slots: 3,
};
const CLIENT_TARGETS: NftSet = {
  name: "client-targets",
  key: ["address", "address", "protocol", "port"],
  isMap: false,
  hasTargets: true,
  timeoutSeconds: 10,
};
const SOURCES: NftSet = {
  name: "sources",
  key: ["address", "protocol", "port", "address"],
  isMap: false,
};
const FILTER: NftHook = { type: "filter", hook: "input", priority: 0 };
const DSTNAT: NftHook = { type: "nat", hook: "prerouting", priority: -100 };
const SRCNAT: NftHook = { type: "nat", hook: "postrouting", priority: 100 };
const ENDPOINT: Readonly<Record<NftFamily, IpAddress>> = {
  ip: "192.0.2.1" as IpAddress,
  ip6: "2001:db8::1" as IpAddress,
}; // canonical
const RANGES = { ip: ["192.0.2.0/25", "198.51.100.0/24"], ip6: ["2001:db8::/65", "fd00::/64"] } as const;

function core(operation: NftOperation, what: string = operation.kind): Part {
  return { what, module: "nf_tables", operation };
}

function rule(what: string, module: string, chain: string, ...statements: NftStatement[]): Part {
  return { what, module, operation: { kind: "add-rule", chain, rule: { statements, comment: "a comment" } } };
}

function parts(family: NftFamily): Part[] {
  const digit = family === "ip" ? "4" : "6";
  const target = { ip: ENDPOINT[family], port: 80 };
  const tcp: NftStatement = { kind: "l4proto", protocol: "tcp" };
  const cidrs = RANGES[family].map(parseCidr).filter((cidr) => cidr !== undefined);
  const natChain = (name: string, hook: NftHook): Part => ({
    what: "chains of type nat",
    module: "nft_chain_nat",
    operation: { kind: "add-chain", chain: { name, hook } },
  });
  return [
    core({ kind: "add-table", comment: "a comment" }),
    core({ kind: "add-set", set: ADDRESSES }),
    core({ kind: "add-set", set: FRONT_ENDS }),
    core({ kind: "add-set", set: CLIENTS }),
    core({ kind: "add-chain", chain: { name: "filter", hook: FILTER } }),
    core({ kind: "add-chain", chain: { name: "target", comment: "a comment" } }),
    core({ kind: "add-elements", set: ADDRESSES, elements: [{ key: [ENDPOINT[family]], comment: "a comment" }] }),
    natChain("dstnat", DSTNAT),
    natChain("srcnat", SRCNAT),
    rule("jumps and verdict maps", "nf_tables", "filter", {
      kind: "vmap",
      fields: ["daddr", "l4proto", "dport"],
      map: FRONT_ENDS.name,
    }),
    rule("sets of address ranges", "nf_tables", "filter", { kind: "address", side: "saddr", negate: true, cidrs }),
    rule("marks", "nf_tables", "filter", { kind: "mark-set", operation: "or", value: 0x4000 }),
    rule("connection tracking (ct)", "nft_ct", "filter", { kind: "ct-new" }),
    rule("address types (fib)", `nft_fib_ipv${digit}`, "filter", { kind: "fib-local", side: "daddr" }),
    rule("random choice (numgen)", "nft_numgen", "filter", { kind: "random-vmap", verdicts: [{ kind: "drop" }] }),
    rule("reject", `nft_reject_ipv${digit}`, "filter", { kind: "reject" }),
    rule("adding to sets from rules (dynset)", "nf_tables", "dstnat", {
      kind: "update",
      set: CLIENTS.name,
      field: "saddr",
    }),
    rule("address translation (nat)", "nft_nat", "dstnat", tcp, { kind: "dnat", to: target }),
    rule("address translation by maps", "nft_nat", "dstnat", tcp, { kind: "random-dnat", targets: [target] }),
    rule("masquerade", "nft_masq", "srcnat", { kind: "masquerade" }),
  ];
}

/** Features that the flat layout needs beyond {@link parts} (docs/reference/flat-nftables.md). */
function mapParts(): Part[] {
  return [
    core({ kind: "add-table", comment: "a comment" }),
    core({ kind: "add-chain", chain: { name: "dstnat", hook: DSTNAT } }),
    core({ kind: "add-set", set: TARGETS }, "maps to addresses and ports"),
    core({ kind: "add-set", set: CLIENT_TARGETS }, "maps that packets fill"),
    core({ kind: "add-set", set: SOURCES }, "sets of sources"),
    rule("address translation by maps with a random number in the key", "nft_numgen", "dstnat", {
      kind: "map-dnat",
      fields: ["daddr", "l4proto", "dport"],
      slots: TARGETS.slots ?? 1,
      map: TARGETS.name,
    }),
    rule("adding to maps from rules (dynset) what the connection says (ct)", "nft_ct", "dstnat", {
      kind: "update-map",
      map: CLIENT_TARGETS.name,
      key: ["saddr", "original-daddr", "l4proto", "original-dport"],
      target: ["reply-saddr", "reply-sport"],
    }),
    rule("the first bits of an address in a key (bitwise)", "nf_tables", "dstnat", {
      kind: "lookup",
      fields: ["daddr", "l4proto", "dport", "saddr/25"],
      set: SOURCES.name,
    }),
  ];
}

/** Rejects with an {@link NftError} that names the missing feature if the kernel does not support all that a family needs. */
export function probeKernel(ruleset: Pick<NetlinkRuleset, "check">, family: NftFamily): Promise<void> {
  return probe(ruleset, family, parts(family));
}

/** {@link probeKernel} for the additional features of the flat layout. */
export function probeFlatLayout(ruleset: Pick<NetlinkRuleset, "check">, family: NftFamily): Promise<void> {
  return probe(ruleset, family, mapParts());
}

/** {@link probeKernel} for endpoints that a hash of the client chooses. */
export function probeHash(ruleset: Pick<NetlinkRuleset, "check">, family: NftFamily): Promise<void> {
  const hash: NftStatement = {
    kind: "map-dnat",
    fields: ["daddr", "l4proto", "dport"],
    slots: TARGETS.slots ?? 1,
    hash: { fields: ["saddr"], seed: 1 },
    map: TARGETS.name,
  };
  return probe(ruleset, family, [
    core({ kind: "add-table", comment: "a comment" }),
    core({ kind: "add-chain", chain: { name: "dstnat", hook: DSTNAT } }),
    core({ kind: "add-set", set: TARGETS }, "maps to addresses and ports"),
    rule("address translation by maps with a hash in the key", "nft_hash", "dstnat", hash),
  ]);
}

async function probe(ruleset: Pick<NetlinkRuleset, "check">, family: NftFamily, all: readonly Part[]): Promise<void> {
  try {
    await ruleset.check(
      { family, table: PROBE_TABLE },
      all.map(({ operation }) => operation),
    );
  } catch (error) {
    const part = error instanceof NftError && error.operation !== undefined ? all[error.operation] : undefined;
    if (part === undefined || !(error instanceof NftError)) throw error;
    const message = `the kernel refuses ${part.what} for family ${family} (is the module ${part.module} loaded?): ${error.message}`;
    throw new NftError(error.code, message, undefined, { cause: error });
  }
}
