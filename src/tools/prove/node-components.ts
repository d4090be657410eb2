/** Rules that other programs put on every node of a cluster: by the names of their chains and tables. */
import { chainsIn } from "../../trace/dump/iptables-nft.ts";
import type { Dump } from "../../trace/dump/recognise.ts";

const CHAINS: readonly (readonly [owner: string, name: RegExp])[] = [
  ["kubelet", /^KUBE-(?:FIREWALL|MARK-DROP|KUBELET-CANARY|IPTABLES-HINT)$/],
  ["a CNI plugin", /^CNI-(?:HOSTPORT-\w+|DN-\w+|SN-\w+|FORWARD|ADMIN|ISOLATION-STAGE-\d|[0-9a-f]{24})$/],
  ["Docker", /^DOCKER(?:-|$)/],
  ["flannel", /^FLANNEL-/],
  ["Calico", /^cali-/],
  ["Cilium", /^(?:OLD_)?CILIUM_/],
  ["kube-router", /^KUBE-(?:ROUTER|NWPLCY|POD-FW)-/],
  ["the VPC CNI", /^AWS-/],
  ["Weave Net", /^WEAVE-/],
  ["ip-masq-agent", /^(?:IP-MASQ|KIND-MASQ)-AGENT$/],
];
const TABLES = /^(?:ip|ip6|inet) (?:cni_hostport|cni-hostport|calico|flannel-ipv[46]|docker-bridges|kindnet\S*)$/;

/** Whether a chain belongs to such a program. @param table such as `ip calico` */
export type IsOfOthers = (table: string, chain: string) => boolean;

/** Undefined if there are no such chains. KUBE-FIREWALL is kubelet's unless kube-proxy writes it, which its iptables mode does. */
export function nodeComponents(dumps: readonly Dump[]): IsOfOthers | undefined {
  const all = chainsIn(dumps);
  const isOfProxy = all.some(({ chain }) => chain === "KUBE-SERVICES" || chain === "KUBE-PORTALS-CONTAINER");
  const isOfOthers: IsOfOthers = (table, chain) =>
    TABLES.test(table) || (ownerOf(chain) !== undefined && !(isOfProxy && chain === "KUBE-FIREWALL"));
  return all.some(({ table, chain }) => isOfOthers(table, chain)) ? isOfOthers : undefined;
}

function ownerOf(chain: string): string | undefined {
  return CHAINS.find(([, name]) => name.test(chain))?.[0];
}

/** Whether a place is in the proxy's own table of nftables. */
export const isInProxyTable = (place: string | undefined): boolean => /^ip6? kube-proxy /.test(place ?? "");

/** The program whose chain a place names: `iptables -t filter KUBE-FIREWALL rule 1: …`. */
export function ownerAt(place: string): string | undefined {
  const chain = /^(?:ip6?tables\S* -t \S+|\S+ \S+) (\S+?):? /.exec(place)?.[1];
  return chain === undefined ? undefined : ownerOf(chain);
}
