/** Rules that other programs put on every node of a cluster: by the names of their chains and tables, and as they write them. */
import { builtInRules, chainsIn } from "../../trace/dump/iptables-nft.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { Chain, Rule } from "../../trace/netfilter/program.ts";

type Known = readonly (readonly [owner: string, name: RegExp])[];

const CHAINS: Known = [
  ["kubelet", /^KUBE-(?:FIREWALL|MARK-DROP|KUBELET-CANARY|IPTABLES-HINT)$/],
  ["a CNI plugin", /^CNI-(?:HOSTPORT-\w+|DN-\w+|SN-\w+|FORWARD|ADMIN|ISOLATION-STAGE-\d|[0-9a-f]{24})$/],
  ["Docker", /^DOCKER(?:[-_]|$)/],
  ["flannel", /^FLANNEL-/],
  ["Calico", /^cali-/],
  ["Cilium", /^(?:OLD_)?CILIUM_/],
  ["kube-router", /^KUBE-(?:ROUTER|NWPLCY|POD-FW)-/],
  ["the VPC CNI", /^AWS-/],
  ["Weave Net", /^WEAVE(?:-|$)/],
  ["ip-masq-agent", /^(?:IP-MASQ(?:-AGENT)?|KIND-MASQ-AGENT)$/],
];
const TABLES =
  /^(?:ip|ip6|inet) (?:cni_hostport|cni-hostport|cni_plugins_masquerade|calico|flannel-ipv[46]|docker-bridges|kindnet\S*)$/;

const BRIDGE = "(?:docker0|docker_gwbridge|br-[0-9a-f]{12})";
/** Rules of built-in chains. */
const RULES: Known = [
  ["Docker", new RegExp(`^(?:-s \\S+ ! -o ${BRIDGE} -j MASQUERADE|-d \\S+ ! -i ${BRIDGE} -j DROP)$`)],
  ["Docker", new RegExp(`^(?:-i ${BRIDGE} )?(?:! )?-o ${BRIDGE} .*-j (?:ACCEPT|DROP)$`)],
  ["flannel", /--comment "flanneld (?:masq|forward)"/],
  ["Calico", /--comment "cali:/],
  ["kube-router", /--comment "(?:KUBE-ROUTER rule |allow (?:in|out)bound (?:traffic|node port traffic) )/],
  ["kube-router", /--match-set kube-router-pod-subnets /],
  ["the VPC CNI", /--comment "AWS, /],
];
const JUMP = /(?:^| )-[jg] (\S+)$/;

/** Whether a chain, a rule of a built-in chain, or such a chain's policy is such a program's. @param table such as `ip calico` */
export type IsOfOthers = (table: string, chain: string, part?: Rule | "policy") => boolean;

/** Undefined if there is nothing of them. @param guardsLoopback whether KUBE-FIREWALL is the proxy's, too. */
export function nodeComponents(dumps: readonly Dump[], guardsLoopback: boolean): IsOfOthers | undefined {
  const all = chainsIn(dumps);
  const isChain = (chain: string) =>
    ownerOf(CHAINS, chain) !== undefined && !(guardsLoopback && chain === "KUBE-FIREWALL");
  const isRule = (text: string) => isChain(JUMP.exec(text)?.[1] ?? "") || ownerOf(RULES, text) !== undefined;
  const chainsWithRules = new Set<string>();
  for (const { chain, text } of builtInRules(dumps)) if (isRule(text)) chainsWithRules.add(chain);
  const isOfOthers: IsOfOthers = (table, chain, part) => {
    if (part === undefined) return TABLES.test(table) || isChain(chain);
    // Docker drops there what no other program accepts.
    if (part === "policy") return chain === "FORWARD" && chainsWithRules.has(chain);
    return chainsWithRules.has(chain) && isRule(part.text);
  };
  const hasAny = chainsWithRules.size > 0 || all.some(({ table, chain }) => isOfOthers(table, chain));
  return hasAny ? isOfOthers : undefined;
}

const ownerOf = (known: Known, text: string) => known.find(([, name]) => name.test(text))?.[0];

/** Whether a place is in the proxy's own table of nftables. */
export const isInProxyTable = (place: string | undefined): boolean => /^ip6? kube-proxy /.test(place ?? "");

/** Whether a chain is one of the proxy's, however many rules its Services need. */
export const isOfProxy = (table: string, { name, isNumbered }: Chain): boolean =>
  isNumbered === false ||
  isInProxyTable(`${table} `) ||
  (name.startsWith("KUBE-") && ownerOf(CHAINS, name) === undefined);

/** The program whose chain a place names: `iptables -t filter KUBE-FIREWALL rule 1: …`. */
export function ownerAt(place: string): string | undefined {
  const [, chain = "", rule = ""] = /^(?:ip6?tables\S* -t \S+|\S+ \S+) (\S+?):? (?:rule \d+: (.*))?/.exec(place) ?? [];
  return ownerOf(CHAINS, chain) ?? ownerOf(RULES, rule);
}
