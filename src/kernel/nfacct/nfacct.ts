/** Named packet counters of the kernel that rules count into: reference iptables-operation.md §12.2. */

export interface CounterValue {
  readonly packets: number;
  readonly bytes: number;
}

/** Whether the kernel has accounting objects. */
type Availability = { readonly available: true } | { readonly available: false; readonly reason: string };

/** The counters of one network namespace. Names have at most 31 characters. Methods throw when the kernel refuses. */
export interface AccountingCounters {
  /** Asks the kernel for a counter that hardly exists; never throws. */
  probe(): Promise<Availability>;
  /** Creates the counter unless it exists. Existing values are kept. */
  ensure(name: string): Promise<void>;
  /** The counter's value since it was created; `undefined` when there is none. */
  read(name: string): Promise<CounterValue | undefined>;
}

/** Longest name that the kernel takes (NFACCT_NAME_MAX without the terminator). */
const NFACCT_NAME_LIMIT = 31;

/** The name that probes ask for. */
export const NFACCT_PROBE_NAME = "IMayExist";

/** Throws a `RangeError` for a name that the kernel would cut or refuse. */
export function checkCounterName(name: string): void {
  if (name === "" || Buffer.byteLength(name) > NFACCT_NAME_LIMIT) {
    throw new RangeError(`accounting counter name ${JSON.stringify(name)}: expected 1 to ${NFACCT_NAME_LIMIT} bytes`);
  }
}
