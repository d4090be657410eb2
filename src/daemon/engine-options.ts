/**
 * Options of the JavaScript engine that are not in force while the program loads. The engine compares its options with those that
 * compiled code was made with, and with any of these it would compile all of Node.js' own modules from their text: 60 ms of processor
 * time, and as much again for each thread (docs/performance.md). So bin/kube-proxy gives them, the process takes them back first
 * thing, and the daemon sets them when its modules are loaded.
 */

interface EngineOption {
  readonly given: RegExp;
  /** What puts the default in its place. */
  readonly takenBack: string;
  /** It counts after the start, too. */
  readonly isSetLater: boolean;
}

const OPTIONS: readonly EngineOption[] = [
  // The engine reads it once, when it makes the heap: before anything of the program runs.
  { given: /^--initial-old-space-size=\d+$/, takenBack: "--initial-old-space-size=0", isSetLater: false },
  { given: /^--heap-growing-percent=\d+$/, takenBack: "--heap-growing-percent=0", isSetLater: true },
  { given: /^--no-allocation-site-pretenuring$/, takenBack: "--allocation-site-pretenuring", isSetLater: true },
];

/** Puts the defaults in place of what the command line of Node.js said. */
export function takeBackEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const { given, takenBack } of OPTIONS) {
    if (execArgv.some((option) => given.test(option))) setFlags(takenBack);
  }
}

/** Sets what {@link takeBackEngineOptions} has taken back. */
export function applyEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const option of execArgv) {
    if (OPTIONS.some(({ given, isSetLater }) => isSetLater && given.test(option))) setFlags(option);
  }
}

/** No import: this is the first module of the program, and loads nothing when there is nothing to do. */
function setFlags(text: string): void {
  process.getBuiltinModule("node:v8").setFlagsFromString(text);
}
