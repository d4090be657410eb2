/** The kernel's helper functions that our programs call (reference ebpf-programs.md §4.3). */

/**
 * What an argument must be. `key` and `value` point to as many bytes as the map says, each of them written before.
 */
export type ArgumentKind = "map" | "key" | "value" | "scalar" | "context";

interface Helper {
  readonly id: number;
  readonly takes: readonly ArgumentKind[];
  /** `value-or-null`: a pointer into the map, to be compared with 0 before it is used. */
  readonly gives: "scalar" | "value-or-null";
}

const helper = (id: number, takes: readonly ArgumentKind[], gives: Helper["gives"] = "scalar"): Helper => ({
  id,
  takes,
  gives,
});

/** Under the kernel's names without `bpf_`. */
export const HELPERS = {
  map_lookup_elem: helper(1, ["map", "key"], "value-or-null"),
  /** Flags as the last argument: 0 writes, 1 creates only, 2 replaces only. 0 or a negative errno. */
  map_update_elem: helper(2, ["map", "key", "value", "scalar"]),
  map_delete_elem: helper(3, ["map", "key"]),
  /** CLOCK_MONOTONIC in ns. */
  ktime_get_ns: helper(5, []),
  get_prandom_u32: helper(7, []),
  get_smp_processor_id: helper(8, []),
  /** Unique for each socket since the machine started. */
  get_socket_cookie: helper(46, ["context"]),
  /** Unique for each network namespace since the machine started. */
  get_netns_cookie: helper(122, ["context"]),
  /** What the system call returns when the program returns 0: a negative errno. Linux 5.18. */
  set_retval: helper(187, ["scalar"]),
} as const satisfies Readonly<Record<string, Helper>>;

export type HelperName = keyof typeof HELPERS;
