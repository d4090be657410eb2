/**
 * `npm run bench -- userspace`: what it costs that the proxy carries the bytes itself, next to a direct connection, to a plain
 * `socket.pipe` and to the iptables mode, in one run. See docs/performance.md.
 */
import type { Bench } from "./driver.ts";
import { LOADS, type Load, type TrafficFigures, type TrafficResults, WAYS, type Way } from "./traffic-figures.ts";
import { TrafficNetwork } from "./traffic-network.ts";
import { judgeTraffic, trafficTable } from "./traffic-targets.ts";

export const bench: Bench = {
  name: "userspace",
  about:
    "Measures connections, throughput and latency through the userspace mode, in throw-away network namespaces. Needs root.",
  options: {
    quick: { help: "one short round; half a minute" },
    rounds: { value: "N", initial: "5", quick: "1", help: "of every load over every way, in turns" },
    seconds: { value: "N", initial: "1.5", quick: "0.5", help: "for each" },
  },
  async run(given) {
    const results = await measureAll(given.whole("rounds"), given.positive("seconds"));
    console.log(trafficTable(results));
    return { verdicts: judgeTraffic(results), figures: { results } };
  },
};

async function measureAll(rounds: number, seconds: number): Promise<TrafficResults> {
  const results = Object.fromEntries(
    LOADS.map((load) => [load, Object.fromEntries(WAYS.map((way) => [way, []]))]),
  ) as unknown as Record<Load, Record<Way, TrafficFigures[]>>;
  const network = await TrafficNetwork.create();
  try {
    for (let round = 1; round <= rounds; round++) {
      for (const load of LOADS) {
        process.stderr.write(`round ${round} of ${rounds}: ${load}…\n`);
        for (const way of WAYS) results[load][way].push(await network.measure(way, load, seconds));
      }
    }
  } finally {
    await network.destroy();
  }
  return results;
}
