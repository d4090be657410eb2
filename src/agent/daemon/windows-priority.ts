/** This process's priority class on Windows: upstream has no such setting (kubernetes #96935). */
import { getPriority, setPriority } from "node:os";
import type { Logger } from "../../logging/logger.ts";
import { PRIORITY_CLASSES } from "../settings/validate.ts";

export interface PriorityCalls {
  /** @throws Error when the system refuses. */
  set(level: number): void;
  get(): number;
}

const SYSTEM: PriorityCalls = { set: (level) => setPriority(level), get: () => getPriority() };

/**
 * Puts the process into a priority class and asks which one it got: Windows silently gives a process without the right
 * to `REALTIME_PRIORITY_CLASS` the next lower one. Logs once what it did not get; the process continues.
 *
 * @param name one of {@link PRIORITY_CLASSES}, once checked.
 */
export function applyPriorityClass(name: string, log: Logger, calls: PriorityCalls = SYSTEM): void {
  const level = PRIORITY_CLASSES.get(name);
  if (level === undefined) return;
  try {
    calls.set(level);
    const now = nameOf(calls.get());
    if (now === name) log.info("Set the priority class", { class: name });
    else log.warn("Windows granted another priority class than requested", { wanted: name, class: now });
  } catch (error) {
    log.error("Failed to set the priority class", error, { wanted: name });
  }
}

function nameOf(level: number): string {
  return [...PRIORITY_CLASSES].find(([, known]) => known === level)?.[0] ?? String(level);
}
