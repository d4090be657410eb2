/**
 * Wine 10 of Debian 13 in its own folder, on every release of Debian: Node.js 24 crashes in the Wine 8 of Debian 12.
 * Its files replace /usr for the programs that {@link underWine} starts, and for no others.
 */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand } from "../net/run-command.ts";

const RELEASE = "trixie";
const KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg";
/**
 * Wine, and those of its optional libraries without which no console program starts. None for windows: with FreeType
 * and without X, explorer.exe restarts itself endlessly.
 */
const PACKAGES = ["wine64", "libwine", "libz-mingw-w64", "libc6", "libgcc-s1", "libunwind8", "liblzma5"];
const LIMIT_MS = 200_000;
const LOADER = "/usr/lib/wine/wine64";
/** For the environment of what {@link underWine} starts. */
export const WINE_SERVER = "/usr/lib/wine/wineserver64";
/** 32-bit programs, which no test has. */
const LEFT_OUT = "usr/lib/x86_64-linux-gnu/wine/i386-windows";
const SCRIPT = 'mount --bind "$0" /usr && exec "$@"';

/** The words that start a program with Wine's files in place of /usr. @param folder of {@link installWine}. */
export function underWine(folder: string, program: string, ...words: readonly string[]): readonly string[] {
  return ["unshare", "--mount", "sh", "-c", SCRIPT, join(folder, "root/usr"), program, ...words];
}

/** The words that start a Windows program. */
export const wine = (folder: string, ...words: readonly string[]): readonly string[] =>
  underWine(folder, LOADER, ...words);

/** Fetches and unpacks what is missing: 115 MB, from this machine's package mirror. Rejects with the tools' error output. */
export async function installWine(folder: string): Promise<void> {
  const root = join(folder, "root");
  if (existsSync(root)) return;
  const archives = join(folder, "packages");
  const draft = join(folder, "root.draft");
  for (const path of [archives, draft]) {
    rmSync(path, { recursive: true, force: true });
    mkdirSync(path);
  }
  await download(join(folder, "apt"), archives);
  for (const name of readdirSync(archives)) await runCommand(["dpkg-deb", "--extract", join(archives, name), draft]);
  rmSync(join(draft, LEFT_OUT), { recursive: true });
  addZlib(join(draft, "usr"));
  rmSync(archives, { recursive: true });
  renameSync(draft, root);
}

/** With its own package lists, so that the machine's stay as they are. */
async function download(state: string, archives: string): Promise<void> {
  rmSync(state, { recursive: true, force: true });
  for (const path of ["state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d"]) {
    mkdirSync(join(state, path), { recursive: true });
  }
  const ofDebian = ["Created-By: Packages", "Component: main", "Label: Debian"];
  const { stdout } = await runCommand(["apt-get", "indextargets", "--format", "$(REPO_URI)", ...ofDebian]);
  const [mirror = ""] = stdout.split("\n");
  if (mirror === "") throw new Error("apt has no mirror of Debian to fetch Wine from: apt-get update");
  writeFileSync(join(state, "etc/sources.list"), `deb [signed-by=${KEYRING}] ${mirror} ${RELEASE} main\n`);
  writeFileSync(join(state, "status"), "");
  const settings = {
    "Dir::State": join(state, "state"),
    "Dir::State::status": join(state, "status"),
    "Dir::Cache": join(state, "cache"),
    "Dir::Etc": join(state, "etc"),
    "APT::Sandbox::User": "root",
    "Acquire::Languages": "none",
    "Acquire::Retries": "3",
  };
  const file = join(state, "apt.conf");
  writeFileSync(
    file,
    Object.entries(settings)
      .map(([name, value]) => `${name} "${value}";\n`)
      .join(""),
  );
  const apt = (...words: readonly string[]) =>
    runCommand(["env", `APT_CONFIG=${file}`, "apt-get", ...words], { cwd: archives, timeoutMs: LIMIT_MS });
  await apt("update");
  await apt("download", ...PACKAGES);
}

/** As libwine's own postinst does: these header bytes turn a mingw library into one of Wine's. */
function addZlib(usr: string): void {
  const name = "zlib1.dll";
  const from = join(usr, "x86_64-w64-mingw32/lib", name);
  const to = join(usr, "lib/x86_64-linux-gnu/wine/x86_64-windows", name);
  cpSync(from, to);
  const bytes = readFileSync(to);
  bytes.fill(0, 64, 96);
  bytes.write("Wine builtin DLL", 64, "latin1");
  writeFileSync(to, bytes);
}
