/**
 * The table that marks packets of one flow for tracing, and shows where they leave the hooks. It is owned by the socket that creates
 * it: the kernel removes it with that socket, however the process ends (reference nfnetlink.md §14).
 */
import { hostCidr, type IpAddress } from "../../../net/ip.ts";
import { bitwise, compare, INTERFACE_NAME_BYTES, metaIs, ruleExpressions, transport } from "../netlink-expressions.ts";
import { LAYOUTS } from "../netlink-values.ts";
import type { NftFamily } from "../ruleset.ts";
import { NftBatch } from "../wire/batch.ts";
import * as nft from "../wire/constants.ts";
import { hostU32, netU16 } from "../wire/data.ts";
import type { NftExpression } from "../wire/expressions.ts";

/** One name for all processes: only the owner can change the table, so two of these commands cannot disturb each other. */
export const TRACE_TABLE = "kube-proxy-trace";

/** The first hook of a packet: prerouting for incoming packets, output for those that the node itself sends. */
export type FirstHook = "prerouting" | "output";

/** Which packets are traced. An undefined field matches anything. */
export interface TraceFilter {
  readonly family: NftFamily;
  readonly hooks: ReadonlySet<FirstHook>;
  /** The IP protocol number. */
  readonly protocol: number;
  readonly source: IpAddress | undefined;
  readonly sourcePort: number | undefined;
  readonly destination: IpAddress;
  readonly destinationPort: number | undefined;
  readonly inInterface: string | undefined;
  readonly mark: number | undefined;
  /** For TCP: only segments that open a connection, or none of them. */
  readonly opening: boolean | undefined;
}

type Hook = keyof typeof nft.NF_INET_HOOKS;

/** The table's chains and their priorities: before all others where a packet enters, after all others where it leaves. */
const CHAINS: Readonly<Record<Hook, number>> = {
  prerouting: -1000,
  output: -1000,
  forward: 0x7fff_fffe,
  input: 0x7fff_fffe,
  postrouting: 0x7fff_fffe,
};

const TCP_FLAGS_AT = 13;
const SYN = 0x02;
const SYN_AND_ACK = 0x12;
/** Traces at most this many packets per second, so that a busy flow costs the node little. */
const PACKETS_A_SECOND = 20;

/** The transaction that creates the table. @param isLimited limits the rate of traced packets, which not every kernel supports. */
export function traceTableBatch(filter: TraceFilter, isLimited: boolean): NftBatch {
  const batch = new NftBatch(LAYOUTS[filter.family].nfproto);
  batch.create("table", { name: TRACE_TABLE, flags: nft.NFT_TABLE_F_OWNER });
  for (const [name, priority] of Object.entries(CHAINS)) {
    const hooknum = nft.NF_INET_HOOKS[name as Hook]; // a key of CHAINS
    batch.add("chain", {
      table: TRACE_TABLE,
      name,
      hook: { hooknum, priority },
      policy: nft.NF_ACCEPT,
      type: "filter",
    });
  }
  for (const chain of filter.hooks) {
    batch.add("rule", { table: TRACE_TABLE, chain, expressions: ruleOf(filter, chain, isLimited) });
  }
  batch.finish();
  return batch;
}

function ruleOf(filter: TraceFilter, hook: FirstHook, isLimited: boolean): readonly NftExpression[] {
  const { family, source, sourcePort, destination, destinationPort, inInterface, mark } = filter;
  const address = (side: "saddr" | "daddr", value: IpAddress) =>
    ruleExpressions({ statements: [{ kind: "address", side, cidrs: [hostCidr(value)] }] }, LAYOUTS[family], () => "");
  const port = (offset: number, value: number) => [transport(offset, 2), compare(netU16(value))];
  const limit: NftExpression = { kind: "limit", rate: PACKETS_A_SECOND, unit: 1, burst: 5, type: 0, flags: 0 };
  return [
    ...metaIs(nft.NFT_META_L4PROTO, Uint8Array.of(filter.protocol)),
    ...address("daddr", destination),
    ...(source === undefined ? [] : address("saddr", source)),
    ...(destinationPort === undefined ? [] : port(2, destinationPort)),
    ...(sourcePort === undefined ? [] : port(0, sourcePort)),
    ...(inInterface === undefined || hook === "output"
      ? []
      : metaIs(nft.NFT_META_IIFNAME, Buffer.concat([Buffer.from(inInterface)], INTERFACE_NAME_BYTES))),
    ...(mark === undefined ? [] : metaIs(nft.NFT_META_MARK, hostU32(mark))),
    ...(filter.opening === undefined ? [] : openingSegments(filter.opening)),
    ...(isLimited ? [limit] : []),
    { kind: "immediate", dreg: nft.NFT_REG_1, data: { value: Uint8Array.of(1) } },
    { kind: "meta", key: nft.NFT_META_NFTRACE, sreg: nft.NFT_REG_1 },
  ];
}

function openingSegments(isOpening: boolean): readonly NftExpression[] {
  const flags = transport(TCP_FLAGS_AT, 1);
  return [flags, bitwise(Uint8Array.of(SYN_AND_ACK)), compare(Uint8Array.of(SYN), !isOpening)];
}
