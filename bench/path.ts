/**
 * `npm run bench -- path`: connecting to an endpoint directly and through a cluster IP, in both layouts of the nftables
 * mode. Two namespaces, one per layout, measured in turns; what counts are ratios within one round.
 */
import type { LayoutName } from "../src/modes/nftables/layout-name.ts";
import { makeReachable } from "./cluster.ts";
import { answerWays, ComparedConnections } from "./connections.ts";
import type { Bench, Outcome } from "./driver.ts";
import { judgeEstimate } from "./estimate.ts";
import { withNamespace } from "./namespace.ts";
import { NftSubject } from "./nftables-subject.ts";
import { startWorker } from "./workers.ts";

interface PathTask {
  readonly layout: LayoutName;
  readonly services: number;
}

const ENDPOINTS = 5;
/** Pairs of namespaces, one after the other: two namespaces with the same work differ by up to 10 %. */
const PAIRS = 4;

export const bench: Bench = {
  name: "path",
  about:
    "What a connection through a cluster IP costs in the two layouts of the nftables mode, next to a direct one. Needs root.",
  options: {
    quick: { help: "few rounds" },
    services: { value: "N", initial: "10000", quick: "1000", help: "of the cluster" },
    rounds: { value: "N", initial: "600", quick: "20", help: "of 100 connections each way" },
  },
  run: (given) => measure(given.whole("services"), given.whole("rounds")),
  async worker({ layout, services }: PathTask) {
    makeReachable();
    const subject = new NftSubject(ENDPOINTS, layout);
    subject.load(services);
    await subject.fullSync();
    return await answerWays(services, ENDPOINTS);
  },
};

async function measure(services: number, rounds: number): Promise<Outcome> {
  const compared = new ComparedConnections("flat", "compatible");
  for (let pair = 1; pair <= PAIRS; pair += 1) {
    process.stderr.write(`connecting among ${services} services, namespaces ${pair} of ${PAIRS}…\n`);
    await withNamespace((flat) =>
      withNamespace(async (compatible) => {
        const tasks = [
          [flat, "Flat"],
          [compatible, "Compatible"],
        ] as const;
        const workers = tasks.map(([namespace, layout]) => startWorker("path", { layout, services }, namespace));
        await compared.take(workers, Math.ceil(rounds / PAIRS));
        for (const worker of workers) worker.end();
      }),
    );
  }
  console.log(
    `medians of ${rounds} rounds of 100 connections each way, and where the median lies at 95 %\n${compared.table(services)}`,
  );
  const what = "a connection through a cluster IP, until connected, flat : compatible";
  return { verdicts: [judgeEstimate(what, compared.between("service"), 1)] };
}
