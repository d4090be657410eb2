/** Which test files run in the virtual machine, relative to the checkout. */
import { globSync } from "node:fs";

/** Only there: what these need, few other kernels have. */
const ONLY_HERE = "{src,test}/**/*.vm.test.ts";

/** Run on the host as well, and skip there what its kernel lacks; here on a second kernel, the distribution's. */
const ON_BOTH = [
  "src/kernel/ipset/ipset.test.ts",
  "src/kernel/ipvs/netlink-ipvs.test.ts",
  "src/kernel/route/addresses.test.ts",
  "src/kernel/route/links.test.ts",
  "src/kernel/conntrack/conntrack.test.ts",
  "src/kernel/iptables/iptables-contract.test.ts",
  "src/kernel/nftables/netlink-nftables.test.ts",
  "test/conformance/nftables-kernel.test.ts",
  "test/kernel/flows/matrix.test.ts",
  "test/kernel/flows/features.test.ts",
];

/** Takes several times as long, and needs a host that does nothing else: for `KPTS_VM_FULL=1`. */
const IN_FULL = ["src/kernel/**/*.test.ts", "test/conformance/*.test.ts", "test/kernel/**/*.test.ts"];

/** @param isFull all kernel tests, and not the usual ones only. */
export function vmFiles(root: string, isFull: boolean): string[] {
  const patterns = isFull ? [ONLY_HERE, ...IN_FULL] : [ONLY_HERE, ...ON_BOTH];
  return [...new Set(globSync(patterns, { cwd: root }))].sort();
}
