/** `npm run bench -- connection`: from a new service to the first connection through its cluster IP, for any mode. */
import type { Bench } from "./driver.ts";
import { measureConnection } from "./first-connection.ts";
import type { ConnectionFigures } from "./nftables-figures.ts";
import { table } from "./table.ts";

/** What the modes promise, p50 of the API server's answer to the first connection, milliseconds. */
const TARGETS_MS: Readonly<Record<string, number>> = { iptables: 200, nftables: 50 };

export const bench: Bench = {
  name: "connection",
  about: `How long after a new service is known a connection through its cluster IP succeeds, with the daemon as it is built (npm run
build), from a manifest and from the API server. Needs root.`,
  options: {
    mode: { value: "MODE", initial: "iptables", help: "iptables or nftables" },
    services: { value: "N", initial: "3000", help: "services that are there before" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each" },
    trials: { value: "N", initial: "30", help: "new services, one after the other" },
    pause: {
      value: "MS",
      initial: "1137",
      help: "between two of them: short pauses measure a node under constant change",
    },
  },
  async run(given) {
    const mode = given.text("mode");
    const services = given.whole("services");
    const [endpointsEach, trials, pauseMs] = [given.whole("endpoints"), given.whole("trials"), given.whole("pause")];
    const figures = await measureConnection({ mode, services, endpointsEach, trials, pauseMs });
    console.log(connectionTable(mode, services, figures));
    const targetMs = TARGETS_MS[mode];
    if (targetMs === undefined) return { figures };
    const p50 = figures.api.p50.toFixed(0);
    const text = `${mode}, ${services} services: first connection ${p50} ms (p50) after the API server's answer, ${targetMs} ms wanted`;
    return { verdicts: [{ passed: figures.api.p50 <= targetMs, text }], figures };
  },
};

function connectionTable(mode: string, services: number, { manifest, api }: ConnectionFigures): string {
  const row = (from: string, { p50, p99, count }: ConnectionFigures["api"]): string[] => [
    from,
    `${p50.toFixed(0)} ms`,
    `${p99.toFixed(0)} ms`,
    String(count),
  ];
  return table(
    [`${mode}, ${services} services`, "p50", "p99", "trials"],
    [row("manifest to first connection", manifest), row("API server to first connection", api)],
  );
}
