/**
 * The program as one script, `dist/bundle/kube-proxy.cjs`, and the compiled code that the build has put beside it (`scripts/bundle.mjs`,
 * `scripts/compiled-code.mjs`). The engine accepts that only if its version, its options and the size of the text are the same; otherwise
 * the script is compiled as usual. Other systems and architectures have no compiled code.
 */
import type { Script } from "node:vm";

const { readFileSync } = process.getBuiltinModule("node:fs");
const vm = process.getBuiltinModule("node:vm");
const { createRequire } = process.getBuiltinModule("node:module");

/** Where the compiled code of a script is kept, for this system. */
export function compiledCodeFile(file: string): string {
  return `${file}.${process.platform}-${process.arch}.cache`;
}

/**
 * Compiles a script of the bundle, which is an expression: a function like the wrapper that Node.js puts around a CommonJS module.
 *
 * @throws Error when the file cannot be read.
 */
export function compileProgram(file: string): Script {
  const compiled = readIfThere(compiledCodeFile(file));
  return new vm.Script(readFileSync(file, "latin1"), {
    filename: file,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    ...(compiled === undefined ? {} : { cachedData: compiled }),
  });
}

/** Runs the result of {@link compileProgram}. */
export function runProgram(script: Script, file: string): void {
  const module = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(file), module, file);
}

function readIfThere(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}
