/** The kernel's state in the soak test, for the mode under test. */
import { execProcess } from "../../src/kernel/process.ts";
import { canonicalIptables } from "../conformance/canonical-iptables.ts";
import { canonicalNftText } from "../conformance/canonical-nft-text.ts";

export type SoakMode = "nftables" | "iptables";

export interface KernelView {
  /** The cluster IPs that have rules. */
  clusterIPs(): Promise<ReadonlySet<string>>;
  /** All rules, in a form that is equal for equal rule sets. */
  rules(): Promise<string>;
  /** Removes all rules. */
  flush(): Promise<void>;
}

async function output(file: string, ...args: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await execProcess(file, args);
  if (status !== 0) throw new Error(`${file} ${args.join(" ")}: ${stderr}`);
  return stdout;
}

const IPV4 = /\b(\d+\.\d+\.\d+\.\d+)(?:\/32)?\b/g;

export const KERNEL_VIEWS: Readonly<Record<SoakMode, KernelView>> = {
  nftables: {
    async clusterIPs() {
      const listing = await output("nft", "list", "map", "ip", "kube-proxy", "service-ips");
      return new Set(Array.from(listing.matchAll(/([\d.]+) \. \w+ \. \d+ :/g), ([, ip = ""]) => ip));
    },
    rules: async () => canonicalNftText(await output("nft", "list", "ruleset")),
    flush: async () => void (await output("nft", "flush", "ruleset")),
  },
  iptables: {
    async clusterIPs() {
      const rules = (await output("iptables", "-t", "nat", "-S", "KUBE-SERVICES")).split("\n");
      return new Set(rules.flatMap((rule) => Array.from(rule.matchAll(IPV4), ([, ip = ""]) => ip)));
    },
    async rules() {
      const saved = [await output("iptables-save"), await output("ip6tables-save")];
      return saved.map((text) => canonicalIptables(text.replaceAll(/ \[\d+:\d+\]$/gm, ""))).join("");
    },
    async flush() {
      for (const tool of ["iptables", "ip6tables"]) {
        for (const table of ["nat", "filter", "mangle"]) {
          await output(tool, "-t", table, "-F");
          await output(tool, "-t", table, "-X");
        }
      }
    },
  },
};
