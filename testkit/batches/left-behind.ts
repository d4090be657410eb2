/** What a test file leaves in its process: the next file of the batch would meet it, or the process would not end. */
import { setTimeout as sleep } from "node:timers/promises";
import { stretched } from "../support/patience.ts";

/** What is closed takes a moment to disappear. */
const PATIENCE_MS = 15_000;

/** Process state that files share. */
export interface ProcessState {
  /** Timers, sockets, children and threads that keep the process alive, by kind. */
  readonly resources: ReadonlyMap<string, number>;
  readonly listeners: ReadonlyMap<string, number>;
  readonly environment: Readonly<NodeJS.ProcessEnv>;
  readonly folder: string;
  readonly globals: ReadonlySet<string>;
}

function counted(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** Exit listeners do not count: a module may have something to do then. */
function listenersOfProcess(): Map<string, number> {
  const names = process.eventNames().filter((name) => name !== "exit");
  return new Map(names.map((name) => [String(name), process.listenerCount(name)]));
}

/** The current state. */
export function processState(): ProcessState {
  return {
    resources: counted(process.getActiveResourcesInfo()),
    listeners: listenersOfProcess(),
    environment: { ...process.env },
    folder: process.cwd(),
    globals: new Set(Object.getOwnPropertyNames(globalThis)),
  };
}

function surplus(what: string, before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): string[] {
  return [...after]
    .filter(([name, count]) => count > (before.get(name) ?? 0))
    .map(([name, count]) => `${what} ${name} (${count} instead of ${before.get(name) ?? 0})`);
}

/** The differences, in words. */
export function differences(before: ProcessState, after: ProcessState): string[] {
  const names = new Set([...Object.keys(before.environment), ...Object.keys(after.environment)]);
  const changed = [...names].filter((name) => before.environment[name] !== after.environment[name]);
  return [
    ...surplus("what keeps a process alive:", before.resources, after.resources),
    ...surplus("listeners of the process for", before.listeners, after.listeners),
    ...changed.map((name) => `the variable ${name} of the environment`),
    ...(before.folder === after.folder ? [] : [`the working folder ${after.folder}`]),
    ...[...after.globals].filter((name) => !before.globals.has(name)).map((name) => `the global ${name}`),
  ];
}

/** Waits until the process is as it was. @returns what still differs after a while; empty if nothing does. */
export async function leftBehind(before: ProcessState, patienceMs = PATIENCE_MS): Promise<string[]> {
  const beginMs = performance.now();
  for (;;) {
    const left = differences(before, processState());
    if (left.length === 0 || performance.now() - beginMs > stretched(patienceMs)) return left;
    await sleep(5);
  }
}
