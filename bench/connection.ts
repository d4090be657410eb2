/** `npm run bench -- connection`: from a new service to the first connection through its cluster IP, for any mode. */
import { parseArgs } from "node:util";
import { measureConnection } from "./first-connection.ts";
import type { ConnectionFigures } from "./nftables-figures.ts";
import { table } from "./table.ts";

/** What the modes promise, p50 of the API server's answer to the first connection, milliseconds. */
const TARGETS_MS: Readonly<Record<string, number>> = { iptables: 200, nftables: 50 };

const USAGE = `Usage: npm run bench -- connection [options]

How long after a new service is known a connection through its cluster IP succeeds, with the daemon as it is built (npm run
build), from a manifest and from the API server. Needs root.

  --mode MODE          iptables or nftables (default iptables)
  --services N         services that are there before (default 3000)
  --endpoints N        endpoints of each (default 5)
  --trials N           new services, one after the other (default 30)
  --pause MS           between two of them: short pauses measure a node under constant change (default 1137)
  --check              exit with status 1 when the target is missed
  --help               this text
`;

/** Runs the bench. @returns the exit status. Rejects with TypeError or RangeError for a command line that is wrong. */
export async function benchConnection(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      mode: { type: "string", default: "iptables" },
      services: { type: "string", default: "3000" },
      endpoints: { type: "string", default: "5" },
      trials: { type: "string", default: "30" },
      pause: { type: "string", default: "1137" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root: run the bench as root");
  const services = positive("--services", values.services);
  const endpointsEach = positive("--endpoints", values.endpoints);
  const trials = positive("--trials", values.trials);
  const pauseMs = positive("--pause", values.pause);
  const figures = await measureConnection({ mode: values.mode, services, endpointsEach, trials, pauseMs });
  console.log(connectionTable(values.mode, services, figures));
  const targetMs = TARGETS_MS[values.mode];
  if (targetMs === undefined) return 0;
  const passed = figures.api.p50 <= targetMs;
  const text = `${values.mode}, ${services} services: first connection ${figures.api.p50.toFixed(0)} ms (p50) after the API server's answer, ${targetMs} ms wanted`;
  console.log(`${passed ? "PASS" : "FAIL"}  ${text}`);
  return values.check && !passed ? 1 : 0;
}

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

function positive(option: string, text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) {
    throw new RangeError(`${option}: ${JSON.stringify(text)} is no positive whole number`);
  }
  return number;
}
