/**
 * Functions of the kernel that are called by the number of their type in its BTF, which is another one in every build: those of
 * conntrack (reference ebpf.md §2.3, ebpf-programs.md §4.7). The kernel offers them to programs under a licence that is compatible with the GPL.
 */
import type { ArgumentKind, KernelObject } from "./helpers.ts";

export interface KernelFunction {
  readonly takes: readonly ArgumentKind[];
  /** `object`: a reference or null; it is to be compared with 0, and to be given back. */
  readonly gives: "scalar" | "nothing" | { readonly object: KernelObject };
}

/** Bytes of `union nf_inet_addr`. */
const ANY_ADDRESS = 16;

/** A packet, the connection as it sees it, and `bpf_ct_opts`. */
const CONNECTION: readonly ArgumentKind[] = ["context", "memory", "size", "memory", "size"];

/** Under the kernel's names. */
export const KERNEL_FUNCTIONS = {
  /** The entry of a connection, in either direction. */
  bpf_skb_ct_lookup: { takes: CONNECTION, gives: { object: "nf_conn" } },
  /** An entry that is not in the table yet. */
  bpf_skb_ct_alloc: { takes: CONNECTION, gives: { object: "nf_conn___init" } },
  /** Address, port (0: any that is free) and which end: 0 the source, 1 the destination. 0 or a negative errno. */
  bpf_ct_set_nat_info: {
    takes: [{ object: "nf_conn___init" }, { bytes: ANY_ADDRESS }, "scalar", "scalar"],
    gives: "scalar",
  },
  /** Milliseconds, until a packet of the connection sets another. */
  bpf_ct_set_timeout: { takes: [{ object: "nf_conn___init" }, "scalar"], gives: "nothing" },
  /** Puts it into the table; null when one of its directions is there. */
  bpf_ct_insert_entry: { takes: [{ object: "nf_conn___init", isTaken: true }], gives: { object: "nf_conn" } },
  bpf_ct_release: { takes: [{ object: "nf_conn", isTaken: true }], gives: "nothing" },
} as const satisfies Readonly<Record<string, KernelFunction>>;

export type KernelFunctionName = keyof typeof KERNEL_FUNCTIONS;

export const KERNEL_FUNCTION_NAMES = Object.keys(KERNEL_FUNCTIONS) as readonly KernelFunctionName[];
