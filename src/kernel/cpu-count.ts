/** How many logical CPUs the machine has, as the conntrack limits are scaled by (reference operation.md §10.1). */
import { existsSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

/**
 * CPUs of all NUMA nodes that have a topology; without NUMA folders all of `cpu/`; else those that this process may run on.
 *
 * @param root folder of the machine's devices.
 */
export function cpuCount(root = "/sys/devices/system"): number {
  const counted = countNumaCpus(join(root, "node")) ?? list(join(root, "cpu"), /^cpu\d+$/)?.length ?? 0;
  return counted > 0 ? counted : availableParallelism();
}

function countNumaCpus(folder: string): number | undefined {
  const nodes = list(folder, /^node\d+$/);
  if (nodes === undefined || nodes.length === 0) return undefined;
  let count = 0;
  for (const node of nodes) {
    for (const cpu of list(join(folder, node), /^cpu\d+$/) ?? []) {
      if (existsSync(join(folder, node, cpu, "topology", "core_id"))) count++;
    }
  }
  return count;
}

function list(folder: string, pattern: RegExp): string[] | undefined {
  try {
    return readdirSync(folder).filter((name) => pattern.test(name));
  } catch {
    return undefined;
  }
}
