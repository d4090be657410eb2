/**
 * JavaScript engine options that are not in force while the program loads. The engine compares its options with those
 * that cached code was compiled with; with any of these set, it would compile all of Node.js' own modules from source:
 * 60 ms of processor time, and as much again for each thread (docs/notes/performance-diary.md). So bin/kube-proxy passes them, the
 * process first resets them, and the daemon sets them again once its modules are loaded.
 */

interface EngineOption {
  readonly given: RegExp;
  /** The option that restores the default. */
  readonly takenBack: string;
  /** It also has an effect after the start. */
  readonly isSetLater: boolean;
}

const OPTIONS: readonly EngineOption[] = [
  // The engine reads it once, when it creates the heap: before any of the program runs.
  { given: /^--initial-old-space-size=\d+$/, takenBack: "--initial-old-space-size=0", isSetLater: false },
  { given: /^--heap-growing-percent=\d+$/, takenBack: "--heap-growing-percent=0", isSetLater: true },
  { given: /^--no-allocation-site-pretenuring$/, takenBack: "--allocation-site-pretenuring", isSetLater: true },
];

/** Resets the options given on the Node.js command line to their defaults. */
export function takeBackEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const { given, takenBack } of OPTIONS) {
    if (execArgv.some((option) => given.test(option))) setFlags(takenBack);
  }
}

/** Sets the options that {@link takeBackEngineOptions} reset. */
export function applyEngineOptions(execArgv: readonly string[] = process.execArgv): void {
  for (const option of execArgv) {
    if (OPTIONS.some(({ given, isSetLater }) => isSetLater && given.test(option))) setFlags(option);
  }
}

/** No import: this is the program's first module, and loads nothing if there is nothing to do. */
function setFlags(text: string): void {
  process.getBuiltinModule("node:v8").setFlagsFromString(text);
}
