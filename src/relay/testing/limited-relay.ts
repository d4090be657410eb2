/**
 * A program that relays within the open-file limit that it was started with: `node limited-relay.ts PORT`, where PORT is that
 * of a server on the loopback device. Talks to its parent over Node's IPC channel.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { NodeRelays } from "../node-relays.ts";
import { LOOPBACK, Sightings } from "./relay-lab.ts";

export type Command = "report" | "take every descriptor" | "give them back";

export interface Report {
  readonly port: number;
  readonly connections: number;
  readonly warnings: readonly string[];
  readonly seen: Pick<Sightings, "opened" | "closed" | "refusals" | "dialFailures">;
}

const limit = Number(/Max open files +(\d+)/.exec(readFileSync("/proc/self/limits", "utf8"))?.[1]);
const warnings: string[] = [];
const log: Logger = { ...silentLogger, warn: (message) => void warnings.push(message) };
const seen = new Sightings();
const relay = await new NodeRelays({ log, fileLimit: limit }).listen({
  protocol: "TCP",
  address: LOOPBACK,
  port: 0,
  pick: () => ({ address: LOOPBACK, port: Number(process.argv[2]) }),
  observer: seen.observer,
  idleTimeoutMs: 1000,
});
const taken: number[] = [];

const commands: Record<Command, () => void> = {
  report() {
    const { opened, closed, refusals, dialFailures } = seen;
    const { port, connections } = relay;
    const report: Report = { port, connections, warnings, seen: { opened, closed, refusals, dialFailures } };
    process.send?.(report);
  },
  "take every descriptor"() {
    try {
      for (;;) taken.push(openSync("/dev/null", "r"));
    } catch {
      const last = taken.pop(); // leaves one to accept with
      if (last !== undefined) closeSync(last);
    }
  },
  "give them back"() {
    for (const fd of taken.splice(0)) closeSync(fd);
  },
};
process.on("message", (command: Command) => commands[command]());
process.on("disconnect", () => process.exit());
