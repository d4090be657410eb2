/**
 * Options of the JavaScript engine that are not in force while the program loads. The engine compares its options with those that
 * compiled code was made with, and with any of these it would compile all of Node.js' own modules from their text: 60 ms of processor
 * time, and as much again for each thread (docs/performance.md). So bin/kube-proxy gives them, the process takes them back first
 * thing, and the daemon sets them when its modules are loaded.
 */

/** The size that was given has been used by then: the engine reads it once, when it makes the heap. */
const AT_ONCE = /^--(initial-old-space-size)=\d+$/;
const LATER = /^--(heap-growing-percent)=\d+$/;

/** Puts the defaults in place of what the command line of Node.js said. */
export function takeBackEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const option of execArgv) {
    const [, name] = AT_ONCE.exec(option) ?? LATER.exec(option) ?? [];
    if (name !== undefined) setFlags(`--${name}=0`);
  }
}

/** Sets what {@link takeBackEngineOptions} has taken back. */
export function applyEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const option of execArgv) {
    if (LATER.test(option)) setFlags(option);
  }
}

/** No import: this is the first module of the program, and loads nothing when there is nothing to do. */
function setFlags(text: string): void {
  process.getBuiltinModule("node:v8").setFlagsFromString(text);
}
