/** What following an API server may cost, judged on measured figures. Pure. */
import type { ApiServerFigures } from "./apiserver-figures.ts";
import type { Verdict } from "./nftables-targets.ts";

const SETTLED_MB = 200;
const EVENT_PATH_US = 100;

/** One verdict per mode and target. */
export function judgeApiServer(results: readonly ApiServerFigures[]): Verdict[] {
  return results.flatMap(({ mode, settledMb, afterStreamMb, source }) => [
    {
      passed: settledMb <= SETTLED_MB,
      text: `${mode}: ${settledMb.toFixed(0)} MB resident once settled, at most ${SETTLED_MB} wanted`,
    },
    {
      passed: afterStreamMb <= SETTLED_MB,
      text: `${mode}: ${afterStreamMb.toFixed(0)} MB after the events, at most ${SETTLED_MB} wanted`,
    },
    {
      passed: source.cpuUsPerEvent < EVENT_PATH_US,
      text: `${mode}: the API source adds ${source.cpuUsPerEvent.toFixed(0)} µs of processor time per event, under ${EVENT_PATH_US} wanted`,
    },
  ]);
}
