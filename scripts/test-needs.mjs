/**
 * What test files need beyond Node.js and the packages: each says so by importing a module of `testkit/needs/`, itself or by
 * what it imports. Only that is built and installed for files that are named to `npm test` and `npm run watch`.
 */
import { spawn } from "node:child_process";
import { join, relative } from "node:path";
import { Sources } from "../testkit/needs/reach.ts";
import { beginSystemTools } from "./system-tools.mjs";

const BUILT_PROGRAM = "built-program";
const KERNEL_TOOLS = "kernel-tools";
const NEEDS = [BUILT_PROGRAM, KERNEL_TOOLS, "image-tools", "qemu"];
/** What the virtual machine runs, besides what it says itself. */
const IN_MACHINE = /\.vm\.test\.ts$|^testkit\/vm\/(?:uml|qemu\S*)\.test\.ts$/;

/** @param files absolute paths. @returns names of modules in `testkit/needs/`. */
export function needsOf(root, files) {
  const sources = new Sources(root);
  const paths = files.map((file) => relative(root, file));
  const reached = paths.map((path) => sources.reachedFrom(path));
  return NEEDS.filter(
    (need) =>
      reached.some((modules) => modules.has(`testkit/needs/${need}.ts`)) ||
      (need !== "image-tools" && need !== "qemu" && paths.some((path) => IN_MACHINE.test(path))),
  );
}

/** Whether tests with these needs are skipped where the kernel cannot do what a network of namespaces takes. */
export const needsKernel = (needs) => needs.includes(KERNEL_TOOLS);

/** Builds and installs it. @returns whether there is a build of the sources as they are, or no need of one. */
export async function provide(root, needs) {
  const tools = needs.filter((need) => need !== BUILT_PROGRAM);
  const [isBuilt] = await Promise.all([
    !needs.includes(BUILT_PROGRAM) || build(root, ["--if-older", "--no-check"]),
    beginSystemTools(tools),
  ]);
  return isBuilt;
}

/**
 * Builds dist/, whose program many tests start; prints errors.
 *
 * @param options of build.mjs.
 * @returns a promise of whether it succeeded.
 */
export function build(root, options) {
  return new Promise((done) => {
    const args = [join(root, "scripts/build.mjs"), ...options];
    const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit" });
    child.on("close", (status) => done(status === 0));
    child.on("error", () => done(false));
  });
}
