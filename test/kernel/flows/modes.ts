/**
 * The proxy modes that the flow tests run in; a new mode is one entry here. What the tests expect of a connection is the
 * same for all modes but for what an entry says.
 */
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";
import type { ProxyDaemon } from "../../support/proxy-daemon.ts";

export const MODES = ["iptables", "nftables"] as const;
export type Mode = (typeof MODES)[number];

export interface ModeTraits {
  /** IPv4 node ports answer on 127.0.0.1 of the node. */
  readonly hasLocalhostNodePorts: boolean;
  /**
   * The node itself is refused at an external address of a service without endpoints; otherwise its packets leave for
   * wherever the address is routed (reference iptables.md §2: OUTPUT has no jump to the external refusals).
   */
  readonly refusesNodeAtExternalAddresses: boolean;
  /** Everything that the mode has in the kernel, in a form that is equal for equal rules. */
  rules(daemon: ProxyDaemon): Promise<string>;
}

export const traitsOf: Readonly<Record<Mode, ModeTraits>> = {
  iptables: {
    hasLocalhostNodePorts: true,
    refusesNodeAtExternalAddresses: false,
    async rules(daemon) {
      const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      return `${canonicalIptables(ipv4)}${canonicalIptables(ipv6)}`;
    },
  },
  nftables: {
    hasLocalhostNodePorts: false,
    refusesNodeAtExternalAddresses: true,
    async rules(daemon) {
      const { stdout } = await daemon.namespace.exec(["nft", "-j", "list", "ruleset"]);
      return canonicalNftables(JSON.parse(stdout).nftables);
    },
  },
};
