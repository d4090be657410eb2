/** Which test files run in the virtual machine, relative to the checkout. */
import { globSync } from "node:fs";

/** In every run: what no other kernel here can do (IPVS, dummy devices, SCTP), and what only this kernel may answer otherwise. */
const USUAL = [
  "{src,test}/**/*.vm.test.ts",
  "src/demo/run-demo.test.ts",
  "src/kernel/ipset/ipset.test.ts",
  "src/kernel/ipvs/netlink-ipvs.test.ts",
  "src/kernel/nftables/netlink-nftables.test.ts",
  "src/kernel/route/*.test.ts",
  "test/kernel/flows/{features,matrix}.test.ts",
];

/** For `KPTS_VM_FULL=1`: all kernel tests, once more. Needs an idle host and most of an hour. */
const FULL = [...USUAL, "src/kernel/**/*.test.ts", "test/conformance/*.test.ts", "test/kernel/**/*.test.ts"];

/** @param isFull all kernel tests, and not only those of every run. */
export function vmFiles(root: string, isFull: boolean): string[] {
  const patterns = isFull ? FULL : USUAL;
  return [...new Set(globSync(patterns, { cwd: root }))].sort();
}
