/**
 * Base images for building without a registry of images: a Debian that debootstrap makes, and the same with Node.js and
 * npm. Kept in .cache/, since they take most of the time. Packages come from where this machine gets its own.
 */
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { runCommand } from "../../testkit/net/run-command.ts";

const NPM_VERSION = "11.19.1";

export type Buildah = (...args: readonly string[]) => Promise<string>;

export interface LocalBasesOptions {
  readonly checkout: string;
  /** Folder that is kept between runs. */
  readonly cache: string;
  readonly buildah: Buildah;
}

/** Makes what is not there yet. @returns the names of the images. */
export async function ensureLocalBases(
  options: LocalBasesOptions,
): Promise<{ readonly base: string; readonly build: string }> {
  const release = codename();
  const base = `localhost/debian:${release}`;
  const build = `localhost/debian-npm:${release}-${NPM_VERSION}`;
  await ensureImage(options, base, "scratch", (root) => makeDebian(release, root));
  await ensureImage(options, build, base, (root) => addNpm(options, root));
  return { base, build };
}

async function ensureImage(
  { buildah, cache }: LocalBasesOptions,
  name: string,
  from: string,
  fill: (root: string) => Promise<void>,
): Promise<void> {
  if ((await buildah("images", "--quiet", "--filter", `reference=${name}`)).trim() !== "") return;
  const root = mkdtempSync(join(cache, "root-"));
  try {
    await fill(root);
    const container = (await buildah("from", from)).trim();
    await buildah("add", "--quiet", container, root, "/");
    await buildah("commit", "--quiet", "--rm", container, name);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function codename(): string {
  const name = /^VERSION_CODENAME=(\w+)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1];
  if (name === undefined) throw new Error("/etc/os-release names no release: this is no Debian");
  return name;
}

async function makeDebian(release: string, root: string): Promise<void> {
  const targets = await runCommand(
    ["apt-get", "indextargets", "--format", "$(REPO_URI)", `Codename: ${release}`, "Component: main"],
    { allowFailure: true },
  );
  const mirror = targets.stdout.trim().split("\n")[0] ?? "";
  const where = mirror === "" ? [] : [mirror];
  await runCommand(["debootstrap", "--variant=minbase", release, root, ...where], { timeoutMs: 200_000 });
}

/** npm and the pinned Node.js below /usr/local, and npm's settings of this machine that have to do with the network. */
async function addNpm({ checkout, cache }: LocalBasesOptions, root: string): Promise<void> {
  const local = join(root, "usr/local");
  for (const folder of ["bin", "lib/node_modules", "etc"]) mkdirSync(join(local, folder), { recursive: true });
  copyFileSync(join(checkout, "node_modules/.bin/node"), join(local, "bin/node"));
  const prefix = join(cache, `npm-${NPM_VERSION}`);
  const npm = join(prefix, "node_modules/npm");
  if (!existsSync(npm)) await runCommand(["npm", "install", "--no-save", "--prefix", prefix, `npm@${NPM_VERSION}`]);
  cpSync(npm, join(local, "lib/node_modules/npm"), { recursive: true });
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(local, "bin/npm"));
  const settings = await Promise.all(["registry", "proxy", "https-proxy", "noproxy"].map(npmSetting));
  const certificates = ((await npmSetting("cafile")) ?? process.env.NODE_EXTRA_CA_CERTS)?.replace(/^cafile=/, "");
  if (certificates !== undefined) {
    cpSync(certificates, join(local, "etc/ca.crt"), { dereference: true });
    settings.push("cafile=/usr/local/etc/ca.crt");
  }
  writeFileSync(
    join(local, "etc/npmrc"),
    settings
      .filter((line) => line !== undefined)
      .map((line) => `${line}\n`)
      .join(""),
  );
}

async function npmSetting(name: string): Promise<string | undefined> {
  const value = (await runCommand(["npm", "config", "get", name])).stdout.trim();
  return value === "" || value === "null" || value === "undefined" ? undefined : `${name}=${value}`;
}
