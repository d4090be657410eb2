/** `npm run bench`: the cost of the iptables mode, next to `iptables-restore` with the same text in the same run. */
import { execFileSync } from "node:child_process";
import { availableParallelism, loadavg, release } from "node:os";
import { binariesOf } from "../src/kernel/iptables/testing/binaries.ts";
import { BACK_ENDS, type BackEnd } from "./backends.ts";
import type { Bench } from "./driver.ts";
import { judgeGrowth } from "./table.ts";
import { engineOptions } from "./workers.ts";

/** Planning a one-endpoint change may cost this many times its cost in the cheapest other size. */
const PLANNING_GROWTH = 1.5;
export const PLANNING = "planning a replaced endpoint, without a tool";

export interface IptablesTask {
  readonly backEnd: BackEnd;
  readonly services: number;
  readonly endpointsEach: number;
  /** Repetitions of each small change with the real tool, and of planning without it. */
  readonly changes: number;
  readonly plannings: number;
  /** For each step. */
  readonly limitMs: number;
}

export const bench: Bench = {
  name: "",
  about: `Measures the iptables mode against the iptables-restore of this machine, in throw-away network namespaces. Needs root.
With a name first, another bench: npm run bench -- NAME --help.`,
  options: {
    quick: { help: "few repetitions; under half a minute" },
    sizes: { value: "N,…", initial: "100,1000,5000,10000", quick: "100,1000", help: "services" },
    endpoints: { value: "N", initial: "5", help: "endpoints of each service" },
    "back-ends": { value: "LIST", initial: BACK_ENDS.join(","), help: "of the tools" },
    limit: { value: "SECONDS", initial: "60", quick: "10", help: "for every step; what is cut off is printed" },
  },
  tasks(given) {
    const isQuick = given.isOn("quick");
    const repeats = isQuick ? { changes: 3, plannings: 200 } : { changes: 15, plannings: 1000 };
    console.log(machineText());
    const all = given.someOf("back-ends", BACK_ENDS).flatMap((backEnd) =>
      given.wholes("sizes").map((services) => {
        const limitMs = 1000 * given.whole("limit");
        const task: IptablesTask = { backEnd, services, endpointsEach: given.whole("endpoints"), ...repeats, limitMs };
        // Each in its own process: a first sync runs code that has not been compiled.
        const more = Array.from({ length: isQuick ? 2 : 4 }, () => ({ ...task, changes: 0, plannings: 0 }));
        return [`${backEnd}, ${services}`, [task, ...more]] as const;
      }),
    );
    return Object.fromEntries(all);
  },
  judge: (columns) =>
    BACK_ENDS.flatMap((backEnd) => {
      const own = Object.entries(columns).filter(([title]) => title.startsWith(backEnd));
      return judgeGrowth(PLANNING, Object.fromEntries(own), PLANNING_GROWTH);
    }),
  async worker(task: IptablesTask) {
    const { measureIptables } = await import("./iptables-worker.ts");
    return await measureIptables(task);
  },
};

/** What the figures depend on besides the program. */
function machineText(): string {
  const versions = BACK_ENDS.map((backEnd) => {
    return execFileSync(binariesOf("IPv4", backEnd).rule, ["--version"], { encoding: "utf8" }).trim();
  });
  const machine = `${availableParallelism()} processors, load ${loadavg()[0]?.toFixed(1)}`;
  return [`Node.js ${process.version} ${engineOptions().join(" ")}`, `kernel ${release()}`, ...versions, machine].join(
    ", ",
  );
}
