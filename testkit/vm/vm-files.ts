/** Which test files run in which virtual machine, relative to the checkout. */
import { globSync } from "node:fs";
import type { MachineName } from "./run-in-vm.ts";

/** What each machine runs by default. */
const USUAL: Readonly<Record<MachineName, readonly string[]>> = {
  /** What the host's kernel may not have: IPVS, dummy devices, SCTP; and the legacy iptables. */
  uml: [
    "{src,test}/**/*.vm.test.ts",
    "demo/run-demo.test.ts",
    "src/modes/ipvs/ipset/ipset.test.ts",
    "src/modes/ipvs/kernel/netlink-ipvs.test.ts",
    "src/kernel/route/*.test.ts",
    "test/kernel/flows/{conntrack-cases,features,flow-histories,gone-connections,matrix,named-flows}.test.ts",
  ],
  /** Where a second kernel with nftables may answer differently. */
  qemu: [
    "src/modes/ebpf/socket-balancer/*.test.ts",
    "src/modes/ipvs/kernel/netlink-ipvs.test.ts",
    "test/kernel/bpf/*.test.ts",
    "test/kernel/wire/netlink-nftables.test.ts",
    "test/conformance/ipvs-mode-switch.vm.test.ts",
    "test/kernel/flows/{features,matrix}.test.ts",
  ],
  /** The kernel of Debian 13, with connection tracking as a module, a list of its hooks, queues, flow tables, SCTP and ipvs. */
  "qemu-6.12": [
    "src/kernel/bpf/bpf.test.ts",
    "src/modes/ebpf/socket-balancer/*.test.ts",
    "test/cli/prove-hooks.test.ts",
    "test/kernel/bpf/*.test.ts",
    "test/kernel/flows/matrix.test.ts",
    "test/property/prove-fuzz.test.ts",
  ],
};

/** For `KPTS_VM_FULL=1`: all kernel tests, once more. Needs an idle host and most of an hour. */
const FULL = ["src/kernel/**/*.test.ts", "test/conformance/*.test.ts", "test/kernel/**/*.test.ts"];

/** The flow tests' modes in each machine. The host tests TCP and UDP, so the machine tests the host's modes over SCTP only. */
export const FLOW_MODES: Readonly<Record<MachineName, string>> = {
  uml: "iptables,ipvs",
  qemu: "iptables,nftables,ipvs,ebpf",
  "qemu-6.12": "ebpf",
};

/** @param isFull all kernel tests, not only the usual ones. */
export function vmFiles(root: string, machine: MachineName, isFull: boolean): string[] {
  const patterns = [...USUAL[machine], ...(isFull ? FULL : [])];
  return [...new Set(globSync(patterns, { cwd: root }))].sort();
}

/** Rough durations in seconds of the longest in user-mode Linux; others take less than half a minute. */
const SECONDS: Readonly<Record<string, number>> = {
  "demo/run-demo.test.ts": 66,
  "test/conformance/ipvs-mode-switch.vm.test.ts": 77,
  "test/kernel/flows/features.test.ts": 58,
  "test/kernel/flows/flow-histories.test.ts": 58,
  "test/kernel/flows/gone-connections.test.ts": 40,
  "test/kernel/flows/matrix.test.ts": 48,
  "test/kernel/flows/named-flows.test.ts": 30,
  "test/kernel/ipvs/faults.vm.test.ts": 56,
  "test/kernel/ipvs/foreign-hands.vm.test.ts": 115,
  "test/kernel/ipvs/graceful-termination.vm.test.ts": 119,
  "test/kernel/ipvs/schedulers.vm.test.ts": 110,
  "test/property/ipvs-histories-kernel.vm.test.ts": 73,
  "test/property/trace-ipvs.vm.test.ts": 15,
};

/** Shares the files between machines that run side by side, so that all take about as long. No share is empty. */
export function shareFiles(files: readonly string[], machines: number): readonly (readonly string[])[] {
  const shares = Array.from({ length: Math.min(machines, files.length) }, () => ({
    seconds: 0,
    files: [] as string[],
  }));
  const secondsOf = (file: string) => SECONDS[file] ?? 15;
  for (const file of files.toSorted((one, other) => secondsOf(other) - secondsOf(one))) {
    const least = shares.reduce((best, share) => (share.seconds < best.seconds ? share : best));
    least.files.push(file);
    least.seconds += secondsOf(file);
  }
  return shares.map((share) => share.files);
}
