/**
 * The proxy modes that the flow tests run in; a new mode is one entry here. What the tests expect of a connection is the
 * same for all modes but for what an entry says.
 */

import { HOST_MODES } from "../../../testkit/support/host-modes.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";
import { listing } from "../ipvs/ipvs-node.ts";
import { PROTOCOLS, type Protocol } from "./cluster-objects.ts";

const ALL_MODES = ["iptables", "nftables", "userspace", "ipvs"] as const;
export type Mode = (typeof ALL_MODES)[number];

/** Those named in `KPTS_MODES` (`ipvs,iptables`), or all but ipvs, whose kernel is that of the virtual machine (testkit/vm). */
export const MODES: readonly Mode[] = ALL_MODES.filter((mode) => {
  const named = process.env.KPTS_MODES;
  return named === undefined ? mode !== "ipvs" : named.split(",").includes(mode);
});

export interface ModeTraits {
  /** IPv4 node ports answer on 127.0.0.1 of the node. */
  readonly hasLocalhostNodePorts: boolean;
  /**
   * The node itself is refused at an external address of a service without endpoints; otherwise its packets leave for
   * wherever the address is routed (reference iptables.md §2: OUTPUT has no jump to the external refusals).
   */
  readonly refusesNodeAtExternalAddresses: boolean;
  /**
   * The daemon carries the bytes itself. So pods see the node's address; SCTP is not served; nothing is served without the
   * daemon. What comes from the node and its pods is not led to external IPs (reference legacy-modes.md §1.3).
   */
  readonly carriesTraffic: boolean;
  /**
   * Virtual servers of the kernel behind addresses that are the node's own: so a Local policy binds the node and its pods as
   * it binds others, unless there is no local endpoint; a client on the node has the service's address as its own; and
   * without endpoints everybody is refused (reference legacy-modes.md §2.3, §2.4, §5.15).
   */
  readonly hasVirtualServers?: boolean;
  /** More of the KubeProxyConfiguration. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Everything that the mode has in the kernel, in a form that is equal for equal rules. */
  rules(daemon: ProxyDaemon): Promise<string>;
}

export const traitsOf: Readonly<Record<Mode, ModeTraits>> = {
  iptables: {
    hasLocalhostNodePorts: true,
    refusesNodeAtExternalAddresses: false,
    carriesTraffic: false,
    async rules(daemon) {
      const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      return `${canonicalIptables(ipv4)}${canonicalIptables(ipv6)}`;
    },
  },
  nftables: {
    hasLocalhostNodePorts: false,
    refusesNodeAtExternalAddresses: true,
    carriesTraffic: false,
    async rules(daemon) {
      const { stdout } = await daemon.namespace.exec(["nft", "-j", "list", "ruleset"]);
      return canonicalNftables(JSON.parse(stdout).nftables);
    },
  },
  userspace: {
    hasLocalhostNodePorts: true,
    refusesNodeAtExternalAddresses: true,
    carriesTraffic: true,
    // A flow that is silent for longer than the default 250 ms is another one.
    config: { udpIdleTimeout: "30s" },
    async rules(daemon) {
      const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      return `${withoutProxyPorts(ipv4)}${withoutProxyPorts(ipv6)}`;
    },
  },
  ipvs: {
    hasLocalhostNodePorts: false,
    refusesNodeAtExternalAddresses: true,
    carriesTraffic: false,
    hasVirtualServers: true,
    rules: ipvsState,
  },
};

async function ipvsState(daemon: ProxyDaemon): Promise<string> {
  const { namespace } = daemon;
  const output = async (...argv: [string, ...string[]]) => (await namespace.exec(argv)).stdout;
  const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
  const addresses = (await output("ip", "-o", "addr")).match(/^\d+: kube-ipvs0 .*$/gm) ?? [];
  return [
    canonicalIptables(ipv4),
    canonicalIptables(ipv6),
    sortedLines((await output("ipset", "list", "-o", "save")).replace(/ (?:initval|bucketsize) \S+/g, "")),
    await listing(namespace),
    sortedLines(addresses.join("\n").replace(/^\d+:|(?:valid|preferred)_lft .*/gm, "")),
  ].join("\n");
}

function sortedLines(text: string): string {
  return text.split("\n").sort().join("\n");
}

/** The proxy's own ports are other ones in each run, and rules stand in the order in which services came. */
function withoutProxyPorts(saved: string): string {
  const lines = saved.replace(/(?<=--to-ports |--to-destination \S+:|KUBE-NODEPORT-NON-LOCAL .*--dport )\d+/g, "PROXY");
  return `${lines.split("\n").sort().join("\n")}\n`;
}

/** What the mode serves of the protocols that can be asked. */
export function protocolsOf(mode: Mode): readonly Protocol[] {
  if (HOST_MODES.includes(mode)) return ["SCTP"];
  return traitsOf[mode].carriesTraffic ? PROTOCOLS.filter((protocol) => protocol !== "SCTP") : PROTOCOLS;
}
