/**
 * `kube-proxy-ts/kernel/nftables`: a typed nftables ruleset, printed as nft text or as libnftables' JSON, or programmed over
 * netlink without the `nft` program. It supports the statements that a service proxy needs, and no others. Programming acts on
 * the network namespace of the process and needs CAP_NET_ADMIN; printing needs nothing.
 *
 * @experimental Names and shapes may change with any version before 1.0.
 *
 * @example
 * ```ts
 * import { type NftOperation, tableOf, tableText } from "kube-proxy-ts/kernel/nftables";
 *
 * const operations: NftOperation[] = [
 *   { kind: "add-table", comment: "an example" },
 *   { kind: "add-chain", chain: { name: "input", hook: { type: "filter", hook: "input", priority: 0 } } },
 *   { kind: "add-rule", chain: "input", rule: { statements: [{ kind: "l4proto", protocol: "sctp" }, { kind: "reject" }] } },
 * ];
 * console.log(tableText(tableOf("ip", "example", operations)));
 * ```
 */
export {
  type NetlinkCommit,
  type NetlinkRuleset,
  type NetlinkRulesetOptions,
  type NetlinkTableName,
  openNetlinkRuleset,
} from "../../kernel/nftables/netlink-nftables.ts";
export {
  type Nftables,
  type NftChainContent,
  type NftChainHead,
  NftError,
  type NftErrorCode,
  type NftForeignChange,
  type NftOperation,
  type NftSetContent,
  type NftTableContent,
} from "../../kernel/nftables/nftables.ts";
export type {
  NftChain,
  NftElement,
  NftFamily,
  NftField,
  NftHook,
  NftKeyType,
  NftRule,
  NftSet,
  NftStatement,
  NftTarget,
  NftValue,
  NftVerdict,
} from "../../kernel/nftables/ruleset.ts";
export type { Json } from "../../kernel/nftables/ruleset-json.ts";
export { libnftablesJson, type NftTable, tableJson, tableOf } from "../../kernel/nftables/ruleset-table.ts";
export { ruleText, tableText } from "../../kernel/nftables/ruleset-text.ts";
export { type Cidr, hostCidr, type IpAddress, parseCidr, parseIpAddress } from "../../net/ip.ts";
export type { ProtocolName as NftProtocol } from "../../net/protocol.ts";
