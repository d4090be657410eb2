/**
 * The kernel's messages about packets whose trace bit is set: one for each rule that matched, for each chain that ended, and for
 * each policy (reference nfnetlink.md §14).
 */
import { attributes, binary, u32be, u64be, zstring } from "../../netlink/attributes.ts";
import { malformed } from "../../netlink/errors.ts";
import type { Reply } from "../../netlink/frames.ts";
import { NFNL_SUBSYS_NFTABLES, nfnetlinkPayload } from "../../netlink/nfnetlink.ts";
import { NFT_MSG_TRACE, NFT_TRACETYPE_POLICY, NFT_TRACETYPE_RETURN, NFT_TRACETYPE_RULE } from "../wire/constants.ts";
import { type NftVerdictData, verdict } from "../wire/data.ts";

/** The headers of the packet as it enters a base chain. */
export interface TracedHeaders {
  /** At most the first 40 bytes. */
  readonly network: Uint8Array;
  /** At most the first 20 bytes; empty for fragments. */
  readonly transport: Uint8Array;
  /** The index of the interface; undefined if there is none. */
  readonly inInterface: number | undefined;
  readonly outInterface: number | undefined;
}

/** The packet's state in connection tracking (Linux 6.16 and later). */
export interface TracedConnection {
  /** Bits of NF_CT_STATE_*. */
  readonly state: number;
  /** Bits of IPS_*; undefined before the connection has a status. */
  readonly status: number | undefined;
}

export interface TraceEvent {
  /** The same at all hooks that a packet passes before it is routed back to the node itself. */
  readonly id: number;
  /** The table's NFPROTO_*. */
  readonly family: number;
  readonly table: string;
  readonly chain: string;
  readonly kind: "rule" | "return" | "policy";
  /** Set for rules only. */
  readonly handle: number | undefined;
  /** For a policy, its verdict code. */
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

/** Decodes a trace message; undefined for other notifications. @throws NetlinkError `malformed` */
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
