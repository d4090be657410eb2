/**
 * Debian packages that make up the virtual machine, downloaded and unpacked into the cache but never installed. A
 * package's folder gets its final name only when it is complete, so an interrupted download is simply repeated.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const LIMIT_MS = 600_000;
const SYSTEM_TOOLS = fileURLToPath(new URL("../../scripts/system-tools.mjs", import.meta.url));

export interface CachedPackage {
  /** The package's name; the most recent version in this system's package lists is used. */
  readonly name: string;
  /** A file it must contain, as a regular expression over paths; a folder without it is made again. */
  readonly proof: RegExp;
  /** Called once with the unpacked folder before it gets its final name. */
  readonly prepare?: (folder: string) => void;
}

function run(file: string, args: readonly string[], cwd: string): { ok: boolean; stdout: string; stderr: string } {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" };
  const result = spawnSync(file, args, { cwd, env, encoding: "utf8", timeout: LIMIT_MS });
  if (result.error !== undefined) return { ok: false, stdout: "", stderr: result.error.message };
  return { ok: result.status === 0, stdout: result.stdout, stderr: result.stderr.trim() };
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** The output of `print`, after updating the package lists if it is empty and we may update them. */
function askApt(file: string, args: readonly string[]): string | undefined {
  const ask = () => run(file, args, "/").stdout.trim();
  let answer = ask();
  if (answer === "" && isRoot()) {
    // A test may be installing packages: this waits its turn.
    run(process.execPath, [SYSTEM_TOOLS, "update"], "/");
    answer = ask();
  }
  return answer === "" ? undefined : answer;
}

/** The package that a metapackage currently stands for, such as `linux-image-6.1.0-56-cloud-amd64`. */
export function dependencyOf(metapackage: string): string | undefined {
  const text = askApt("apt-cache", ["depends", "--no-recommends", "--no-suggests", metapackage]);
  return /^\s*Depends: (\S+)$/m.exec(text ?? "")?.[1];
}

/** The file that `apt-get download` would write, `name_version_architecture.deb`. */
function fileNameOf(name: string): string | undefined {
  return /^'[^']*' (\S+\.deb) /m.exec(askApt("apt-get", ["download", "--print-uris", name]) ?? "")?.[1];
}

function hasProof(folder: string, proof: RegExp): boolean {
  if (!existsSync(folder)) return false;
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).some((path) => proof.test(path));
}

/** The folder of the newest cached version, for a machine without package lists or network. */
function newestCached(cache: string, { name, proof }: CachedPackage): string | undefined {
  const folders = readdirSync(cache)
    .filter((entry) => entry.startsWith(`${name}_`))
    .map((entry) => join(cache, entry))
    .filter((folder) => hasProof(folder, proof));
  return folders.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
}

function download(wanted: CachedPackage, folder: string): void {
  const work = `${folder}.part`;
  rmSync(work, { recursive: true, force: true });
  mkdirSync(join(work, "root"), { recursive: true });
  try {
    const args = ["download", ...(isRoot() ? ["-o", "APT::Sandbox::User=root"] : []), wanted.name];
    const got = run("apt-get", args, work);
    const archive = readdirSync(work).find((file) => file.endsWith(".deb"));
    if (!got.ok || archive === undefined) throw new Error(`apt-get download ${wanted.name}: ${got.stderr}`);
    const unpacked = run("dpkg-deb", ["--extract", join(work, archive), join(work, "root")], work);
    if (!unpacked.ok) throw new Error(`dpkg-deb --extract ${archive}: ${unpacked.stderr}`);
    wanted.prepare?.(join(work, "root"));
    if (!hasProof(join(work, "root"), wanted.proof)) throw new Error(`${archive} has no file like ${wanted.proof}`);
    rmSync(folder, { recursive: true, force: true });
    renameSync(join(work, "root"), folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/**
 * The folder with the unpacked package. Blocks while it downloads.
 * @throws Error that says what is unavailable.
 */
export function ensurePackage(cache: string, wanted: CachedPackage): string {
  mkdirSync(cache, { recursive: true });
  const file = fileNameOf(wanted.name);
  if (file === undefined) {
    const cached = newestCached(cache, wanted);
    if (cached !== undefined) return cached;
    throw new Error(
      `this system's package lists have no package ${wanted.name} (Debian on amd64 has; apt-get update?)`,
    );
  }
  const folder = join(cache, basename(file, ".deb"));
  if (!hasProof(folder, wanted.proof)) {
    process.stderr.write(`downloading the Debian package ${basename(file, ".deb")}\n`);
    download(wanted, folder);
  }
  return folder;
}
