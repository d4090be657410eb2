/**
 * `npm run bench -- nftables`: what the nftables mode costs by size, next to `nft -f` doing the same in the same run. See
 * docs/performance.md.
 */
import { fileURLToPath } from "node:url";
import { layoutNameOf } from "../src/dataplane/nftables/layout-name.ts";
import { type Bench, type Given, workerFigures } from "./driver.ts";
import { measureConnection } from "./first-connection.ts";
import { type NftablesFigures, type NftablesTask, PARTS, type Part } from "./nftables-figures.ts";
import { judgeNftables, nftablesTable } from "./nftables-targets.ts";

const WORKER = fileURLToPath(new URL("./nftables-worker.ts", import.meta.url));

/** The daemon takes long to start with more. */
const CONNECTION_SIZES: readonly number[] = [1000, 10_000];

/** What is measured of the flat layout; upstream has nothing like it. */
const FLAT_PARTS: readonly Part[] = ["changes", "burst"];

/** Changes times services: what keeps the largest size to a minute. */
const CHANGES_LIMIT = 3_000_000;

export const bench: Bench = {
  name: "nftables",
  about: `Measures the nftables mode against the nft program of this machine, in throw-away network namespaces. Needs root.
The first load and a restart are always measured.`,
  parts: {
    changes: "one endpoint, a hundred, a new service; and what the kernel takes for one endpoint at least",
    burst: "changes at a steady rate",
    healing: "damage that other programs do",
    upstream: "nft -f of such changes, and the listing that upstream makes before each sync",
    "upstream-load": "nft -f of the whole table",
    connection: `manifest to first connection, with the daemon (${CONNECTION_SIZES.join(" and ")} services only)`,
  },
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: "100,1000,10000,30000", quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    burst: { value: "SECONDS", initial: "30", quick: "3", help: "of changes at a steady rate" },
    rate: { value: "N", initial: "1000", help: "of them a second" },
    layout: { value: "NAME", initial: "Compatible", help: "or Flat, of which only changes and burst are measured" },
    limit: { value: "SECONDS", initial: "300", help: "for every run of nft; what is cut off is shown as such" },
  },
  async run(given) {
    const results: NftablesFigures[] = [];
    for (const task of tasksOf(given)) {
      process.stderr.write(`measuring ${task.services} services × ${task.endpointsEach} endpoints…\n`);
      const figures: NftablesFigures = await workerFigures({ script: WORKER, task });
      const isConnecting = task.parts.includes("connection") && CONNECTION_SIZES.includes(task.services);
      results.push(
        isConnecting ? { ...figures, connection: await measureConnection({ ...task, mode: "nftables" }) } : figures,
      );
    }
    console.log(nftablesTable(results));
    return { verdicts: judgeNftables(results), figures: { results } };
  },
};

function tasksOf(given: Given): readonly NftablesTask[] {
  const layout = layoutNameOf(given.text("layout"));
  if (layout === undefined) throw new RangeError(`--layout: ${JSON.stringify(given.text("layout"))} is no layout`);
  const isFlat = layout === "Flat";
  const possible = isFlat ? FLAT_PARTS : PARTS;
  const parts = given.parts.length === 0 ? possible : possible.filter((part) => given.parts.includes(part));
  const quick = given.isOn("quick");
  return given.wholes("sizes").map(
    (services): NftablesTask => ({
      layout,
      services,
      endpointsEach: given.whole("endpoints"),
      parts,
      changes: quick ? 100 : isFlat ? 500 : Math.min(500, Math.ceil(CHANGES_LIMIT / services)),
      nftChanges: quick ? 3 : 5,
      burstSeconds: given.whole("burst"),
      burstRate: given.whole("rate"),
      trials: quick ? 10 : 50,
      limitMs: 1000 * given.whole("limit"),
    }),
  );
}
