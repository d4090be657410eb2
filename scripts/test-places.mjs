/**
 * `node scripts/test-places.mjs [NAME…]`: the unit tests, and what is above them without a kernel, in fresh clones in places as other
 * people have them (CONTRIBUTING.md has the table). `npm run test:all` goes through all of them. Exit status 1 if one fails.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const PATHS = ["src", "test/cli", "test/docs", "test/explain", "test/trace", "testkit/batches", "testkit/support"];
const TESTS = ["npm", "test", "--silent", "--", ...PATHS];
/** Another user, who may only read all files besides. */
const NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const quoted = (words) => words.map((word) => `'${word}'`).join(" ");

/** What each place is: where the clone is, and what is in front of the tests. */
const PLACES = {
  terminal: { command: ["script", "-qec", quoted(TESTS), "/dev/null"] },
  colour: { env: { FORCE_COLOR: "1", NO_COLOR: undefined } },
  "no colour": { env: { NO_COLOR: "1", TERM: "dumb" } },
  // Root's home is closed to others, and so is each folder of the clone.
  "closed folder": { below: homedir(), umask: 0o077 },
  "path with a space": { name: "a b" },
  "another user": { command: [...NOBODY, ...TESTS], owner: 65_534, needsRoot: true },
  "another language and time zone": { env: { LANG: "tr_TR.UTF-8", LC_ALL: "tr_TR.UTF-8", TZ: "Asia/Kathmandu" } },
  "a busy machine": { busy: 8 },
};

/** Like the shell's `for i; do while :; do :; done & done`. @returns what ends them. */
function keepBusy(processes) {
  const children = Array.from({ length: processes }, () =>
    spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
  );
  return () => {
    for (const child of children) child.kill("SIGKILL");
  };
}

/** @returns what is wrong, or undefined. */
function tryPlace({ below = tmpdir(), name = "clone", umask = 0o022, command = TESTS, env = {}, owner, busy = 0 }) {
  const before = process.umask(umask);
  const folder = mkdtempSync(join(below, "kpts-place-"));
  const stop = keepBusy(busy * availableParallelism());
  try {
    const clone = join(folder, name);
    const home = join(folder, "home");
    mkdirSync(home);
    const steps = [
      ["git", "clone", "--quiet", root, clone],
      ["cp", "-a", join(root, "node_modules"), clone],
      ...(owner === undefined
        ? []
        : [
            ["chmod", "755", folder],
            ["chown", "-R", `${owner}:${owner}`, clone, home],
          ]),
    ];
    for (const [program, ...words] of steps) {
      const { status, stderr } = spawnSync(program, words, { encoding: "utf8" });
      if (status !== 0) return `${program}: ${stderr}`;
    }
    const { NODE_TEST_CONTEXT: _, NODE_COMPILE_CACHE: __, ...inherited } = process.env;
    const where = { cwd: clone, env: { ...inherited, ...(owner !== undefined && { HOME: home }), ...env } };
    const { status, stdout, stderr } = spawnSync(command[0], command.slice(1), {
      ...where,
      encoding: "utf8",
      maxBuffer: 2 ** 28,
      stdio: ["ignore", "pipe", "pipe"],
    });
    return status === 0 ? undefined : `${stdout}${stderr}`.split(/\r?\n/).slice(-80).join("\n");
  } finally {
    stop();
    process.umask(before);
    rmSync(folder, { recursive: true, force: true });
  }
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !Object.hasOwn(PLACES, name));
if (unknown.length > 0) {
  console.error(`no place ${unknown.join(", ")}; there are: ${Object.keys(PLACES).join(", ")}`);
  process.exit(1);
}
for (const [name, place] of Object.entries(PLACES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  if (place.needsRoot && process.getuid() !== 0) {
    console.log(`- ${name}: needs root`);
    continue;
  }
  const problem = tryPlace(place);
  console.log(problem === undefined ? `✓ ${name}` : `✗ ${name}\n${problem}`);
  if (problem !== undefined) process.exitCode = 1;
}
