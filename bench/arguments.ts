/** The command line of the bench. */
import { parseArgs } from "node:util";
import { BACK_ENDS, type BackEnd } from "./figures.ts";

export const USAGE = `Usage: npm run bench -- [options]

Measures the iptables mode against the iptables-restore of this machine, in throw-away network namespaces. Needs root.
For the nftables mode: npm run bench -- nftables --help. For the ipvs mode: npm run bench -- ipvs --help.
For following an API server: npm run bench -- apiserver --help. For first connections: npm run bench -- connection --help.

  --quick              100 and 1000 services, few repetitions; under half a minute
  --sizes N,…          services (default 100,1000,5000,10000)
  --endpoints N        endpoints of each service (default 5)
  --back-ends LIST     legacy,nft (default both)
  --limit SECONDS      for every step; what is cut off is printed (default 60)
  --total-limit SECONDS  sizes that would start later are left out (default 1200)
  --forms              compare forms of payload instead: ours, upstream's, and in parts
  --json FILE          write all figures
  --check              exit with status 1 when a target is missed
  --help               this text
`;

export interface BenchArguments {
  readonly sizes: readonly number[];
  readonly endpointsEach: number;
  readonly backEnds: readonly BackEnd[];
  readonly limitMs: number;
  readonly totalLimitMs: number;
  /** Repetitions of each small change, of plannings, and of first full syncs and iptables-restore alone. */
  readonly repeats: { readonly changes: number; readonly plannings: number; readonly full: number };
  readonly comparesForms: boolean;
  readonly jsonFile: string | undefined;
  readonly isChecking: boolean;
}

/** Throws a RangeError or TypeError for a command line that is wrong. @returns `help` when that is asked for. */
export function readArguments(argv: readonly string[]): BenchArguments | "help" {
  const { values } = parseArgs({
    args: argv.filter((word) => word !== "--"),
    options: {
      quick: { type: "boolean", default: false },
      sizes: { type: "string" },
      endpoints: { type: "string", default: "5" },
      "back-ends": { type: "string", default: BACK_ENDS.join(",") },
      limit: { type: "string" },
      "total-limit": { type: "string" },
      forms: { type: "boolean", default: false },
      json: { type: "string" },
      check: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return "help";
  const { quick } = values;
  const sizes = values.sizes ?? (quick ? "100,1000" : values.forms ? "1000,10000" : "100,1000,5000,10000");
  return {
    sizes: sizes.split(",").map((text) => positive("--sizes", text)),
    endpointsEach: positive("--endpoints", values.endpoints),
    backEnds: values["back-ends"].split(",").map(backEnd),
    limitMs: 1000 * positive("--limit", values.limit ?? (quick ? "10" : "60")),
    totalLimitMs: 1000 * positive("--total-limit", values["total-limit"] ?? (quick ? "30" : "1200")),
    repeats: quick ? { changes: 3, plannings: 200, full: 3 } : { changes: 15, plannings: 1000, full: 5 },
    comparesForms: values.forms,
    jsonFile: values.json,
    isChecking: values.check,
  };
}

function positive(option: string, text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) {
    throw new RangeError(`${option}: ${JSON.stringify(text)} is no positive whole number`);
  }
  return number;
}

function backEnd(text: string): BackEnd {
  const found = BACK_ENDS.find((name) => name === text);
  if (found === undefined)
    throw new RangeError(`--back-ends: ${JSON.stringify(text)} is not one of ${BACK_ENDS.join(", ")}`);
  return found;
}
