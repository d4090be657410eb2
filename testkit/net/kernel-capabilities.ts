/** What this machine lacks for a network of namespaces with a proxy in it, in words that say what to do. */
import { modeNamed, type ProxyMode } from "../../src/modes/registry.ts";
import { isOnPath } from "../support/tools.ts";
import { NetworkNamespace } from "./network-namespace.ts";
import { CommandError } from "./run-command.ts";
import { newRunName } from "./run-name.ts";

const requiredTools = [
  { tool: "ip", package: "iproute2" },
  { tool: "sysctl", package: "procps" },
  { tool: "iptables", package: "iptables" },
  { tool: "ip6tables", package: "iptables" },
] as const;

/** What to try in a fresh namespace, each with the meaning of its failure. */
const kernelProbes: readonly { readonly argv: readonly [string, ...string[]]; readonly missing: string }[] = [
  { argv: ["ip", "link", "add", "kpts0", "type", "bridge"], missing: "the kernel has no bridge devices" },
  {
    argv: ["ip", "link", "add", "kpts1", "type", "veth", "peer", "name", "kpts2"],
    missing: "the kernel has no veth devices",
  },
  { argv: ["iptables", "-t", "nat", "-S"], missing: "the kernel cannot do iptables NAT" },
  { argv: ["ip6tables", "-t", "nat", "-S"], missing: "the kernel cannot do ip6tables NAT" },
];

function reasonOf(error: unknown): string {
  if (error instanceof CommandError) return error.stderr.trim().split("\n")[0] ?? "";
  return error instanceof Error ? error.message : String(error);
}

/** Everything that is missing to build a topology and run the proxy in it; empty if nothing is. Leaves nothing behind. */
export async function missingForTopology(): Promise<string[]> {
  if (process.platform !== "linux") return [`this is ${process.platform}: network namespaces are a feature of Linux`];
  if (process.getuid?.() !== 0)
    return ["not root: network namespaces and iptables rules need CAP_SYS_ADMIN and CAP_NET_ADMIN"];
  const tools = requiredTools.filter(({ tool }) => !isOnPath(tool));
  if (tools.length > 0) {
    return tools.map((entry) => `no program ${entry.tool} on PATH: install the package ${entry.package}`);
  }
  let namespace: NetworkNamespace;
  const name = newRunName("probe");
  try {
    namespace = await NetworkNamespace.create(name);
  } catch (error) {
    return [`no network namespace can be made (${reasonOf(error)}): the container or the kernel forbids it`];
  }
  try {
    const missing: string[] = [];
    for (const probe of kernelProbes) {
      try {
        await namespace.exec(probe.argv);
      } catch (error) {
        missing.push(`${probe.missing} (${reasonOf(error)})`);
      }
    }
    return missing;
  } finally {
    await namespace.remove();
  }
}

/** What the kernel lacks for the mode, beyond a topology. */
export async function missingForMode(mode: ProxyMode): Promise<string[]> {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return [];
  const missing = await (await modeNamed(mode).loadRuntime()).missingInKernel?.();
  return missing === undefined ? [] : [missing];
}
