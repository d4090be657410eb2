/** Kernel parameters in memory: for tests and for runs without a kernel. */
import { SysctlError, type Sysctls } from "../../src/kernel/sysctl.ts";

export interface MemorySysctls extends Sysctls {
  readonly values: Map<string, number>;
  /** `name=value` of each write, in order. */
  readonly writes: readonly string[];
  /** Writes to these fail as on a read-only file system. */
  readonly readOnly: Set<string>;
}

/** Only the given parameters exist, as in a kernel. */
export function memorySysctls(initial: Readonly<Record<string, number>> = {}): MemorySysctls {
  const values = new Map(Object.entries(initial));
  const writes: string[] = [];
  const readOnly = new Set<string>();
  const existing = (name: string): number => {
    const value = values.get(name);
    if (value === undefined) throw new SysctlError("missing", `sysctl ${name}: no such parameter`);
    return value;
  };
  return {
    values,
    writes,
    readOnly,
    async read(name) {
      return existing(name);
    },
    async write(name, value) {
      existing(name);
      if (readOnly.has(name)) throw new SysctlError("denied", `cannot write ${value} to sysctl ${name}: read-only`);
      values.set(name, value);
      writes.push(`${name}=${value}`);
    },
  };
}
