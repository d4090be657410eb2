/**
 * The proxy modes of the flow tests: those whose rules these tests can list. Their expectations for a connection are
 * the same for all modes, except for the modes' traits.
 */

import type { ProxyMode } from "../../../src/modes/registry.ts";
import type { Protocol } from "../../../src/net/protocol.ts";
import { HOST_MODES } from "../../../testkit/support/host-modes.ts";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";
import { type ModeTraits, traitsOfMode } from "../../mode-traits.ts";
import { listing } from "../ipvs/ipvs-node.ts";
import { PROTOCOLS } from "./cluster-objects.ts";

/** How a test sees the mode at work. */
interface Observed {
  /** Runs in the virtual machine's kernel instead of the host's (testkit/vm). */
  readonly runsInMachine?: boolean;
  /** Its programs are attached to a cgroup, and see the sockets of processes in it. */
  readonly runsInCgroup?: boolean;
  /** Session affinity holds for a client at one address of a service, not across all of them. */
  readonly remembersByAddress?: boolean;
  /** Additions to the KubeProxyConfiguration. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Additions to its section `ebpf`. */
  readonly ebpf?: Readonly<Record<string, unknown>>;
  /** Everything that the mode has in the kernel, in a form that is equal for equal rules. */
  rules(daemon: ProxyDaemon): Promise<string>;
}

async function nftRules({ namespace }: ProxyDaemon): Promise<string> {
  const { stdout } = await namespace.exec(["nft", "-j", "list", "ruleset"]);
  // nft prints nothing if a table disappears while it lists, and stops at a table with an owner, whose flag nft 1.0.6 cannot print.
  if (stdout === "" || stdout.endsWith('"flags": \n')) return "";
  return canonicalNftables(JSON.parse(stdout).nftables);
}

const OBSERVED = {
  iptables: {
    async rules(daemon) {
      const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      return `${canonicalIptables(ipv4)}${canonicalIptables(ipv6)}`;
    },
  },
  nftables: { rules: nftRules },
  "nftables-flat": {
    config: { mode: "nftables", nftables: { layout: "Flat" } },
    remembersByAddress: true,
    rules: nftRules,
  },
  // The programs see the sockets of the test's own cgroup: flow-network.ts.
  ebpf: { runsInCgroup: true, remembersByAddress: true, rules: nftRules },
  userspace: {
    // A flow that is silent for longer than the default 250 ms becomes a new one.
    config: { udpIdleTimeout: "2m0s" },
    async rules(daemon) {
      const [ipv4, ipv6] = await Promise.all([daemon.saved("iptables-save"), daemon.saved("ip6tables-save")]);
      return `${withoutProxyPorts(ipv4)}${withoutProxyPorts(ipv6)}`;
    },
  },
  ipvs: { runsInMachine: true, remembersByAddress: true, rules: ipvsState },
} as const satisfies Partial<Record<ProxyMode | `${ProxyMode}-${string}`, Observed>>;

export type Mode = keyof typeof OBSERVED;

/** The mode's traits for its users, and how tests see it. */
export type ObservedMode = ModeTraits & Observed;

export const traitsOf: Readonly<Record<Mode, ObservedMode>> = {
  iptables: observed("iptables"),
  nftables: observed("nftables"),
  "nftables-flat": observed("nftables-flat"),
  ebpf: observed("ebpf"),
  userspace: observed("userspace"),
  ipvs: observed("ipvs"),
};

function observed(mode: Mode): ObservedMode {
  return { ...traitsOfMode(mode === "nftables-flat" ? "nftables" : mode), ...OBSERVED[mode] };
}

/**
 * Those named in `KPTS_MODES` (`ipvs,iptables`), or all that the host's kernel should run. A mode with several layouts
 * appears once for each: what happens to packets is tested in all.
 */
export const MODES_AND_LAYOUTS: readonly Mode[] = (Object.keys(traitsOf) as Mode[]).filter((mode) => {
  const named = process.env.KPTS_MODES;
  if (named !== undefined) return named.split(",").includes(mode);
  const { runsInMachine, runsInCgroup } = traitsOf[mode];
  return runsInMachine !== true && runsInCgroup !== true;
});

/** Those, and the mode that decides before there are packets: for what clients meet. ebpf-life.test.ts covers its crashes and stops. */
export const ALL_MODES: readonly Mode[] =
  process.env.KPTS_MODES === undefined ? [...MODES_AND_LAYOUTS, "ebpf"] : MODES_AND_LAYOUTS;

/** The same, each mode once: for what does not depend on the layout. */
export const MODES: readonly Mode[] = MODES_AND_LAYOUTS.filter((mode) => mode !== "nftables-flat");

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

/** The proxy's own ports differ in each run, and rules are in the order in which services came. */
function withoutProxyPorts(saved: string): string {
  const lines = saved.replace(/(?<=--to-ports |--to-destination \S+:|KUBE-NODEPORT-NON-LOCAL .*--dport )\d+/g, "PROXY");
  return `${lines.split("\n").sort().join("\n")}\n`;
}

/** The mode's protocols that can be tested. */
export function protocolsOf(mode: Mode): readonly Protocol[] {
  if (HOST_MODES.includes(mode)) return ["SCTP"];
  return traitsOf[mode].carriesTraffic ? PROTOCOLS.filter((protocol) => protocol !== "SCTP") : PROTOCOLS;
}
