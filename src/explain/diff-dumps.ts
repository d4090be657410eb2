/** What is wanted on a node against what its tools print: differences, each with its service ports. */
import { compareInventories, type Difference } from "../inspect/dumps/compare.ts";
import type { DumpKind, Inventory } from "../inspect/dumps/inventory.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import { LineOwners } from "./line-owners.ts";
import { safe } from "./safe-text.ts";

/** A difference, and the service ports that it is about. */
export interface OwnedDifference extends Difference {
  /** `namespace/name:port`; empty when it is about all, or about none that is known. */
  readonly servicePorts: readonly string[];
}

/** @param owners the cluster whose names and addresses tell whose a line is. */
export function diffInventories(
  wanted: ReadonlyMap<DumpKind, Inventory>,
  found: ReadonlyMap<DumpKind, Inventory>,
  owners: ExplainedCluster,
): OwnedDifference[] {
  const [first] = owners.families;
  const ownership = first?.inspection.comparison?.ownership(owners.families.map(({ node }) => node.family));
  if (ownership === undefined) return [];
  const differences = [...found].flatMap(([kind, inventory]) => {
    const own = wanted.get(kind);
    return own === undefined ? [] : compareInventories(own, inventory, ownership);
  });
  // The names of 10,000 services cost time, and mostly there is nothing to tell.
  if (differences.length === 0) return [];
  const lines = new LineOwners(owners);
  return differences.map((difference) => ({ ...difference, servicePorts: lines.ownersOf(difference) }));
}

/** How a comparison is told: against the kernel, or between two plans. */
interface DifferenceWords {
  readonly states: Readonly<Record<Difference["state"], string>>;
  readonly missing: string;
  readonly extra: string;
}

export const KERNEL_WORDS: DifferenceWords = {
  states: {
    missing: "is missing",
    extra: "is there, and should not be",
    changed: "is not as it should be",
    moved: "has the right lines in a wrong order",
  },
  missing: "missing:",
  extra: "extra:",
};

export const PLAN_WORDS: DifferenceWords = {
  states: { missing: "is new", extra: "is gone", changed: "changes", moved: "changes its order" },
  missing: "+",
  extra: "-",
};

/** For people. Pure. */
export function differencesText(differences: readonly OwnedDifference[], words: DifferenceWords): string {
  let text = "";
  for (const { state, kind, place, name, missing, extra, servicePorts } of differences) {
    const whose = servicePorts.length === 0 ? "" : ` (${servicePorts.join(", ")})`;
    text += `${kind} ${name} in ${place}${whose} ${words.states[state]}\n`;
    for (const line of extra) text += `  ${words.extra} ${line}\n`;
    for (const line of missing) text += `  ${words.missing} ${line}\n`;
  }
  return safe(text);
}
