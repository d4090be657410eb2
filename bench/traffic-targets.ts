/** The figures of the userspace mode's bench as text, and their targets. Pure. */
import { median, table } from "./table.ts";
import type { Verdict } from "./targets.ts";
import { LOADS, type Load, type TrafficFigures, type TrafficResults, WAYS, type Way } from "./traffic-figures.ts";

/** Of what a proxy of ten lines carries: less is a fault. */
const FLOOR = 0.5;
/** And this is wanted. */
const WANTED = 0.9;

type Measure = (figures: TrafficFigures) => number;

const perSecond: Measure = ({ count, seconds }) => count / seconds;
/** Milliseconds for each thousand, or seconds for each billion: of connections, of bytes. */
const cpuPer =
  (unit: number, part: "proxyCpuMs" | "allCpuMs"): Measure =>
  (figures) =>
    (figures[part] / figures.count) * unit;

const decimals = (digits: number) => (value: number) => value.toFixed(digits);
const microseconds = (value: number): string => (1000 * value).toFixed(0);

interface Row {
  readonly title: string;
  readonly load: Load;
  readonly measures: readonly Measure[];
  readonly text: (value: number) => string;
}

/** Seconds for a gigabyte, from milliseconds for a byte. */
const GIGABYTE_SECONDS = 1e9 / 1000;

const ROWS: readonly Row[] = [
  { title: "connections a second", load: "connections", measures: [perSecond], text: decimals(0) },
  row("  proxy's CPU, ms for 1000", "connections", cpuPer(1000, "proxyCpuMs"), 0),
  row("  everybody's CPU, ms for 1000", "connections", cpuPer(1000, "allCpuMs"), 0),
  row("to the client, MB/s", "download", (figures) => perSecond(figures) / 1e6, 0),
  row("  proxy's CPU, s for 1 GB", "download", cpuPer(GIGABYTE_SECONDS, "proxyCpuMs"), 2),
  row("  everybody's CPU, s for 1 GB", "download", cpuPer(GIGABYTE_SECONDS, "allCpuMs"), 2),
  row("from the client, MB/s", "upload", (figures) => perSecond(figures) / 1e6, 0),
  row("  proxy's CPU, s for 1 GB", "upload", cpuPer(GIGABYTE_SECONDS, "proxyCpuMs"), 2),
  row("  everybody's CPU, s for 1 GB", "upload", cpuPer(GIGABYTE_SECONDS, "allCpuMs"), 2),
  latencyRow("answer on an open connection, µs p50 / p99", "answers"),
  latencyRow("connecting and the first answer, µs p50 / p99", "first answers"),
];

function row(title: string, load: Load, measure: Measure, digits: number): Row {
  return { title, load, measures: [measure], text: decimals(digits) };
}

function latencyRow(title: string, load: Load): Row {
  return { title, load, measures: [({ p50Ms }) => p50Ms, ({ p99Ms }) => p99Ms], text: microseconds };
}

const TITLES: Readonly<Record<Way, string>> = {
  direct: "direct",
  pipe: "socket.pipe",
  relay: "our relay",
  userspace: "userspace mode",
  iptables: "iptables mode",
};

/** The middle of all rounds. */
function middle(results: TrafficResults, load: Load, way: Way, measure: Measure): number {
  return median(results[load][way].map(measure));
}

/** A column for each way. */
export function trafficTable(results: TrafficResults): string {
  return table(
    ["", ...WAYS.map((way) => TITLES[way])],
    ROWS.map(({ title, load, measures, text }) => [
      title,
      ...WAYS.map((way) => measures.map((measure) => text(middle(results, load, way, measure))).join(" / ")),
    ]),
  );
}

/** How the relay does next to a plain pipe, round by round: the machine is as busy for both. */
export function judgeTraffic(results: TrafficResults): Verdict[] {
  const verdicts = (["relay", "userspace"] as const).flatMap((way) =>
    (["download", "upload", "connections"] as const).map((load) => {
      const part = median(
        results[load][way].map((figures, round) => {
          const pipe = results[load].pipe[round];
          return pipe === undefined ? 0 : perSecond(figures) / perSecond(pipe);
        }),
      );
      const text = `${TITLES[way]}, ${load}: ${percent(part)} of socket.pipe, ${percent(WANTED)} wanted, ${percent(FLOOR)} the least`;
      return { passed: part >= (way === "relay" ? WANTED : FLOOR), text };
    }),
  );
  const isComplete = LOADS.every((load) => WAYS.every((way) => results[load][way].every(({ count }) => count > 0)));
  return [...verdicts, { passed: isComplete, text: "every load went every way" }];
}

function percent(part: number): string {
  return `${(100 * part).toFixed(0)} %`;
}
