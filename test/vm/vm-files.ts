/** Which test files run in the virtual machine, relative to the checkout. */
import { globSync } from "node:fs";

/** In every run: the kernel boundary of the ipvs mode, and what the distribution's kernel may answer otherwise. */
const USUAL = [
  "src/kernel/conntrack/conntrack.test.ts",
  "src/kernel/ipset/ipset.test.ts",
  "src/kernel/iptables/iptables-contract.test.ts",
  "src/kernel/ipvs/netlink-ipvs.test.ts",
  "src/kernel/nftables/netlink-nftables.test.ts",
  "src/kernel/route/addresses.test.ts",
  "src/kernel/route/links.test.ts",
];

/** For `KPTS_VM_FULL=1`: what few other kernels can do, and all kernel tests. Needs an idle host and most of an hour. */
const FULL = [
  "{src,test}/**/*.vm.test.ts",
  "src/kernel/**/*.test.ts",
  "test/conformance/*.test.ts",
  "test/kernel/**/*.test.ts",
];

/** @param isFull all kernel tests, and not only those of every run. */
export function vmFiles(root: string, isFull: boolean): string[] {
  const patterns = isFull ? FULL : USUAL;
  return [...new Set(globSync(patterns, { cwd: root }))].sort();
}
