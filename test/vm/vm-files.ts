/** Which test files run in which virtual machine, relative to the checkout. */
import { globSync } from "node:fs";
import type { MachineName } from "./run-in-vm.ts";

/** What each machine runs unless it is told otherwise. */
const USUAL: Readonly<Record<MachineName, readonly string[]>> = {
  /** What the host's kernel may not have: IPVS, dummy devices, SCTP; and the legacy iptables. */
  uml: [
    "{src,test}/**/*.vm.test.ts",
    "src/demo/run-demo.test.ts",
    "src/kernel/ipset/ipset.test.ts",
    "src/kernel/ipvs/netlink-ipvs.test.ts",
    "src/kernel/route/*.test.ts",
    "test/kernel/flows/{features,matrix}.test.ts",
  ],
  /** What a second kernel with nftables may answer otherwise. */
  qemu: [
    "src/kernel/ipvs/netlink-ipvs.test.ts",
    "src/kernel/nftables/netlink-nftables.test.ts",
    "test/conformance/ipvs-mode-switch.vm.test.ts",
    "test/kernel/flows/{features,matrix}.test.ts",
  ],
};

/** For `KPTS_VM_FULL=1`: all kernel tests, once more. Needs an idle host and most of an hour. */
const FULL = ["src/kernel/**/*.test.ts", "test/conformance/*.test.ts", "test/kernel/**/*.test.ts"];

/** The modes that the flow tests have in each machine. The host asks over TCP and UDP, so those of its modes ask over SCTP only. */
export const FLOW_MODES: Readonly<Record<MachineName, string>> = {
  uml: "iptables,ipvs",
  qemu: "iptables,nftables,ipvs",
};

/** @param isFull all kernel tests, and not only the usual ones. */
export function vmFiles(root: string, machine: MachineName, isFull: boolean): string[] {
  const patterns = [...USUAL[machine], ...(isFull ? FULL : [])];
  return [...new Set(globSync(patterns, { cwd: root }))].sort();
}
