/**
 * What the kernel tells of a packet whose trace bit is set: one message for each rule that matched, for each chain that ended, and
 * for each policy (reference nfnetlink.md §14).
 */
import { attributes, binary, u32be, u64be, zstring } from "../../netlink/attributes.ts";
import { malformed } from "../../netlink/errors.ts";
import type { Reply } from "../../netlink/frames.ts";
import { NFNL_SUBSYS_NFTABLES, nfnetlinkPayload } from "../../netlink/nfnetlink.ts";
import { NFT_MSG_TRACE, NFT_TRACETYPE_POLICY, NFT_TRACETYPE_RETURN, NFT_TRACETYPE_RULE } from "../wire/constants.ts";
import { type NftVerdictData, verdict } from "../wire/data.ts";

/** Headers as they are when the packet enters a base chain. */
export interface TracedHeaders {
  /** The first 40 bytes at most. */
  readonly network: Uint8Array;
  /** The first 20 bytes at most; empty for fragments. */
  readonly transport: Uint8Array;
  /** Numbers of the interfaces; undefined where there is none. */
  readonly inInterface: number | undefined;
  readonly outInterface: number | undefined;
}

/** What connection tracking knows of the packet (from Linux 6.16 on). */
export interface TracedConnection {
  /** Bits of NF_CT_STATE_*. */
  readonly state: number;
  /** Bits of IPS_*; undefined before the connection has any. */
  readonly status: number | undefined;
}

export interface TraceEvent {
  /** The same for all hooks that a packet passes before it is routed back to the node itself. */
  readonly id: number;
  /** NFPROTO_* of the table. */
  readonly family: number;
  readonly table: string;
  readonly chain: string;
  readonly kind: "rule" | "return" | "policy";
  /** Of a rule. */
  readonly handle: number | undefined;
  /** Of rules; a policy has its code. */
  readonly verdict: NftVerdictData;
  readonly mark: number;
  /** Set on the first message of each base chain. */
  readonly headers: TracedHeaders | undefined;
  readonly connection: TracedConnection | undefined;
}

const message = attributes({
  table: [1, zstring],
  chain: [2, zstring],
  handle: [3, u64be],
  type: [4, u32be],
  verdict: [5, verdict],
  id: [6, u32be],
  network: [8, binary],
  transport: [9, binary],
  inInterface: [10, u32be],
  outInterface: [12, u32be],
  mark: [14, u32be],
  policy: [16, u32be],
  connectionStatus: [20, u32be],
  connectionState: [21, u32be],
});

const KINDS: Readonly<Record<number, TraceEvent["kind"]>> = {
  [NFT_TRACETYPE_POLICY]: "policy",
  [NFT_TRACETYPE_RETURN]: "return",
  [NFT_TRACETYPE_RULE]: "rule",
};

/** Decodes a notification; undefined for others of nf_tables. @throws NetlinkError `malformed` */
export function readTraceEvent(reply: Reply): TraceEvent | undefined {
  if (reply.type !== ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_TRACE)) return undefined;
  const { family, input, start, end } = nfnetlinkPayload(reply);
  const found = message.read(input, start, end);
  const { table, chain, id, mark = 0, network, connectionState, policy } = found;
  const kind = KINDS[found.type ?? 0];
  if (table === undefined || chain === undefined || id === undefined || kind === undefined) {
    throw malformed("a trace message without table, chain, id or type", input.bytes.subarray(0, end), start);
  }
  const { inInterface, outInterface, transport = new Uint8Array(0), connectionStatus: status } = found;
  return {
    ...{ id, family, table, chain, kind, mark },
    handle: found.handle,
    verdict: found.verdict ?? { code: policy ?? 0 },
    headers: network === undefined ? undefined : { network, transport, inInterface, outInterface },
    connection: connectionState === undefined ? undefined : { state: connectionState, status },
  };
}
