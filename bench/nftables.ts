/**
 * `npm run bench -- nftables`: the cost of the nftables mode by size, next to `nft -f` doing the same in the same run.
 * See docs/performance.md.
 */
import { LAYOUT_NAMES, type LayoutName } from "../src/modes/nftables/layout-name.ts";
import type { Bench, Given } from "./driver.ts";
import { judgeGrowth } from "./table.ts";

/** The change for which no large cluster of a run may need more than {@link GROWTH} times what the smallest needs. */
export const ONE = "one endpoint changed";
export const OWN = "  of that outside of the kernel";
const GROWTH = 1.5;
const LARGEST = ["30000 services", "100000 services"];

/** What can be measured by itself; the first load always is. */
const PARTS = {
  changes: "one endpoint, a hundred, a new service; and what the kernel takes for one endpoint at least",
  burst: "changes at a steady rate",
  healing: "damage that other programs do",
  upstream: "nft -f of such changes, and the listing that upstream makes before each sync",
  load: "what the kernel takes for the batches of the first load at least, and nft -f of the whole table",
} as const;
type Part = keyof typeof PARTS;
/** The parts that apply to the flat layout; upstream has nothing like it. */
const FLAT_PARTS: readonly string[] = ["changes", "burst", "load"];
/** Changes times services: keeps the largest size to a minute. */
const CHANGES_LIMIT = 3_000_000;

export interface NftablesTask {
  readonly layout: LayoutName;
  readonly services: number;
  readonly endpointsEach: number;
  readonly parts: readonly Part[];
  /** Repetitions of a one-endpoint change, and of the same with `nft -f`. */
  readonly changes: number;
  readonly nftChanges: number;
  readonly burstSeconds: number;
  readonly burstRate: number;
  /** Repetitions of each kind of damage. */
  readonly trials: number;
  /** For each run of `nft`. */
  readonly limitMs: number;
}

export const bench: Bench = {
  name: "nftables",
  about: `Measures the nftables mode against the nft program of this machine, in throw-away network namespaces. Needs root.
The first load and a restart are always measured.`,
  parts: PARTS,
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: "100,1000,10000,30000", quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    burst: { value: "SECONDS", initial: "30", quick: "3", help: "of changes at a steady rate" },
    rate: { value: "N", initial: "1000", help: "of them a second" },
    layout: {
      value: "NAME",
      initial: "Compatible",
      help: `or Flat, of which only ${FLAT_PARTS.join(", ")} are measured`,
    },
    limit: { value: "SECONDS", initial: "300", help: "for every run of nft" },
  },
  tasks: (given) => Object.fromEntries(tasksOf(given).map((task) => [`${task.services} services`, [task]])),
  judge: (columns) =>
    "100 services" in columns && LARGEST.some((services) => services in columns)
      ? [ONE, OWN].flatMap((name) => judgeGrowth(name, columns, GROWTH))
      : [],
  async worker(task: NftablesTask) {
    const { measureNftables } = await import("./nftables-worker.ts");
    return await measureNftables(task);
  },
};

function tasksOf(given: Given): readonly NftablesTask[] {
  const layout = given.oneOf("layout", LAYOUT_NAMES);
  const isFlat = layout === "Flat";
  const wanted = Object.keys(PARTS).filter((part) => given.wants(part) && (!isFlat || FLAT_PARTS.includes(part)));
  const quick = given.isOn("quick");
  return given.wholes("sizes").map(
    (services): NftablesTask => ({
      ...{ layout, services, endpointsEach: given.whole("endpoints"), parts: wanted as Part[] }, // its keys
      changes: quick ? 100 : isFlat ? 500 : Math.min(500, Math.ceil(CHANGES_LIMIT / services)),
      ...{ nftChanges: quick ? 3 : 5, trials: quick ? 10 : 50 },
      ...{ burstSeconds: given.whole("burst"), burstRate: given.whole("rate"), limitMs: 1000 * given.whole("limit") },
    }),
  );
}
