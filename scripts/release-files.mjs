/**
 * `npm run release:files -- [FOLDER]`: makes everything that a release publishes into FOLDER (`release/`), and publishes
 * nothing (RELEASE.md): npm packages, archives and Debian packages for amd64 and arm64, a zip for Windows, the kubectl
 * plugin with its krew manifest, the chart, a software bill of materials, and their hashes. Two runs for one commit give the
 * same bytes: times are the commit's, names are sorted, and compiled code, which depends on the machine, is left out.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { makeLibraryPackage } from "./library-package.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { name: packageName, version, description } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages;
/** Seconds since 1970: the commit's. */
const epoch =
  process.env.SOURCE_DATE_EPOCH ??
  spawnSync("git", ["log", "-1", "--format=%ct"], { cwd: root, encoding: "utf8" }).stdout.trim();
const DEBIAN = { x64: "amd64", arm64: "arm64" };
const work = mkdtempSync(join(tmpdir(), "kpts-release-"));

function run(program, args, options = {}) {
  const env = { ...process.env, TZ: "UTC", LC_ALL: "C", SOURCE_DATE_EPOCH: epoch, ...options.env };
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    ...options,
    env,
  });
  if (error !== undefined) throw new Error(`${program}: ${error.message}`);
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${stderr || stdout}`);
  return stdout;
}

/** Unpacks a package of the lock file, if its bytes match the lock's hash. */
function unpackLocked(name, to) {
  const { version: wanted, integrity } = lock[`node_modules/${name}`] ?? {};
  if (wanted === undefined) throw new Error(`package-lock.json has no ${name}`);
  const spec = `${name}@${wanted}`;
  const packed = run("npm", ["pack", spec, "--json", "--ignore-scripts", "--pack-destination", work]);
  const [{ filename }] = JSON.parse(packed);
  const file = join(work, filename);
  const found = `sha512-${createHash("sha512").update(readFileSync(file)).digest("base64")}`;
  if (found !== integrity) throw new Error(`${spec} is not what package-lock.json says`);
  mkdirSync(to, { recursive: true });
  run("tar", ["-xzf", file, "-C", to, "--strip-components=1", "--no-same-owner"]);
  rmSync(file);
}

/** The program with Node.js and the packages of one platform, as bin/kube-proxy expects them. */
function programFolder(arch) {
  const to = join(work, `program-${arch}`);
  cpSync(join(root, "bin"), join(to, "bin"), { recursive: true });
  copyBundle(to);
  cpSync(join(root, "dist/man"), join(to, "dist/man"), { recursive: true });
  // What the bundle does not contain.
  for (const name of ["koffi", `@koromix/koffi-linux-${arch}`]) unpackLocked(name, join(to, "node_modules", name));
  const node = join(work, `node-${arch}`);
  unpackLocked(`node-linux-${arch}`, node);
  mkdirSync(join(to, "node_modules/.bin"));
  cpSync(join(node, "bin/node"), join(to, "node_modules/.bin/node"));
  dropDevelopment(join(to, "node_modules"));
  return to;
}

function copyBundle(to) {
  mkdirSync(to, { recursive: true });
  run("sh", [join(root, "scripts/runtime-files.sh"), root, to]);
}

/** What running a package does not need: types, maps, tests, and what koffi is compiled from, but not the scripts beside that. */
function dropDevelopment(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    const isLeft = entry.isDirectory()
      ? /^(test|tests|examples|benchmarks|doc|vendor)$/
      : /\.([cm]?ts|map|cc|hh|inc|S|asm|def)$/;
    if (isLeft.test(entry.name)) rmSync(path, { recursive: true });
    else if (entry.isDirectory()) dropDevelopment(path);
  }
}

/** The same times and modes wherever it is made. */
function settle(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isSymbolicLink()) continue;
    const isProgram = entry.isDirectory() || /^#!|^\x7fELF/.test(readFileSync(path).subarray(0, 4).toString("latin1"));
    chmodSync(path, isProgram ? 0o755 : 0o644);
    utimesSync(path, Number(epoch), Number(epoch));
  }
}

function tarball(folder, name, top = name.replace(/\.tar\.gz$|\.tgz$/, "")) {
  settle(folder);
  const order = ["--sort=name", `--mtime=@${epoch}`, "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"];
  const tar = name.replace(/gz$/, "tar.part");
  run("tar", [...order, `--transform=s,^\\.,${top},`, "-cf", join(out, tar), "-C", folder, "."]);
  run("gzip", ["-n9", "-S", ".gz", join(out, tar)]);
  cpSync(join(out, `${tar}.gz`), join(out, name));
  rmSync(join(out, `${tar}.gz`));
}

/** KiB, as deb-substvars(5) counts them: the output of `du` depends on the file system. */
function installedSize(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .map((entry) => (entry.isFile() ? Math.ceil(statSync(join(entry.parentPath, entry.name)).size / 1024) : 1))
    .reduce((sum, size) => sum + size, 0);
}

function debianPackage(program, arch) {
  const deb = join(work, `deb-${arch}`);
  cpSync(program, join(deb, "usr/lib/kube-proxy-ts"), {
    recursive: true,
    filter: (path) => !path.includes("/dist/man"),
  });
  mkdirSync(join(deb, "usr/bin"), { recursive: true });
  const plugin = ["kubectl-kube_proxy", "kubectl_complete-kube_proxy"];
  for (const [name, to] of [["kube-proxy-ts", "kube-proxy"], ...plugin.map((name) => [name, name])])
    run("ln", ["-s", `../lib/kube-proxy-ts/bin/${to}`, join(deb, "usr/bin", name)]);
  for (const page of readdirSync(join(root, "dist/man"))) {
    mkdirSync(join(deb, "usr/share/man/man1"), { recursive: true });
    const packed = spawnSync("gzip", ["-n9c", join(root, "dist/man", page)]).stdout;
    writeFileSync(join(deb, "usr/share/man/man1", `${page}.gz`), packed);
  }
  const files = { "kube-proxy-ts.service": "lib/systemd/system", "config.yaml": "etc/kube-proxy-ts" };
  for (const [name, folder] of Object.entries(files))
    cpSync(join(root, "deploy/package", name), join(deb, folder, name));
  cpSync(join(root, "LICENSE"), join(deb, "usr/share/doc/kube-proxy-ts/copyright"));
  mkdirSync(join(deb, "DEBIAN"));
  const size = installedSize(deb);
  const control = {
    ...{ Package: "kube-proxy-ts", Version: version, Architecture: DEBIAN[arch], Section: "net", Priority: "optional" },
    ...{ Maintainer: "kube-proxy-ts maintainers <maintainers@kube-proxy-ts.example>", "Installed-Size": size },
    ...{ Depends: "libc6 (>= 2.28), libstdc++6", Recommends: "iptables, kmod", Description: description },
  };
  const text = Object.entries(control)
    .map(([field, value]) => `${field}: ${value}\n`)
    .join("");
  writeFileSync(join(deb, "DEBIAN/control"), text);
  writeFileSync(join(deb, "DEBIAN/conffiles"), "/etc/kube-proxy-ts/config.yaml\n");
  settle(deb);
  run("dpkg-deb", [
    "--root-owner-group",
    "-Zgzip",
    "--build",
    deb,
    join(out, `kube-proxy-ts_${version}_${DEBIAN[arch]}.deb`),
  ]);
}

function windowsZip() {
  const folder = join(work, "windows");
  run("sh", [join(root, "deploy/windows/collect-program.sh"), folder]);
  rmSync(join(folder, "node_modules/.package-lock.json"), { force: true });
  dropDevelopment(join(folder, "node_modules"));
  settle(folder);
  const name = `kube-proxy-ts-${version}-windows-amd64.zip`;
  const files = run("find", [".", "-type", "f"], { cwd: folder }).split("\n").filter(Boolean).sort();
  run("zip", ["-X", "-9", "-q", join(out, name), "-@"], { cwd: folder, input: files.join("\n") });
}

/** For laptops: the commands that need no kernel, run by the Node.js that is there; it has no code of one platform. */
function kubectlPlugin() {
  const folder = join(work, "plugin");
  copyBundle(folder);
  for (const name of ["kubectl-kube_proxy", "kubectl-kube_proxy.cmd", "start.cjs"])
    cpSync(join(root, "deploy/krew", name), join(folder, name));
  const complete = "kubectl_complete-kube_proxy";
  cpSync(join(root, "bin", complete), join(folder, complete));
  const name = `kubectl-kube_proxy-${version}.tar.gz`;
  tarball(folder, name, ".");
  const sha = createHash("sha256")
    .update(readFileSync(join(out, name)))
    .digest("hex");
  const manifest = readFileSync(join(root, "deploy/krew/kube-proxy.yaml"), "utf8");
  writeFileSync(join(out, "kube-proxy.yaml"), manifest.replaceAll("VERSION", version).replaceAll("SHA256", sha));
}

/** CycloneDX, for the locked dependencies and Node.js. npm gives each a random number, today's time, and the folder's name. */
function billOfMaterials() {
  const bom = JSON.parse(run("npm", ["sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"]));
  delete bom.serialNumber;
  bom.metadata.component.name = packageName;
  bom.metadata.timestamp = new Date(Number(epoch) * 1_000).toISOString();
  writeFileSync(join(out, `kube-proxy-ts-${version}.cdx.json`), `${JSON.stringify(bom, undefined, 1)}\n`);
}

const STEPS = 6;
let begun = 0;

/** Says what is done and how much is left: all of it takes minutes. */
function step(what) {
  begun += 1;
  console.log(`${new Date().toTimeString().slice(0, 8)}  ${begun} of ${STEPS}: ${what}`);
}

const out = resolve(process.argv[2] ?? join(root, "release"));
try {
  if (existsSync(out) && readdirSync(out).length > 0) throw new Error(`${out} is not empty`);
  if (run("git", ["status", "--porcelain"]).trim() !== "")
    throw new Error("the checkout has changes: commit them first");
  mkdirSync(out, { recursive: true });
  step("builds the program");
  run(process.execPath, [join(root, "scripts/build.mjs"), "--clean", "--no-check"]);
  for (const name of readdirSync(join(root, "dist/bundle")))
    if (name.endsWith(".cache")) rmSync(join(root, "dist/bundle", name));
  step("packs the two npm packages");
  run("npm", ["pack", "--ignore-scripts", "--pack-destination", out]);
  run("npm", ["pack", makeLibraryPackage(), "--ignore-scripts", "--pack-destination", out]);
  for (const arch of ["x64", "arm64"]) {
    step(`makes the archive and the Debian package for ${DEBIAN[arch]}`);
    const program = programFolder(arch);
    tarball(program, `kube-proxy-ts-${version}-linux-${DEBIAN[arch]}.tar.gz`);
    debianPackage(program, arch);
  }
  step("makes the zip for Windows");
  windowsZip();
  step("makes the kubectl plugin, the chart, the bill of materials and the hashes");
  kubectlPlugin();
  tarball(join(root, "deploy/chart"), `kube-proxy-ts-chart-${version}.tgz`, "kube-proxy-ts");
  billOfMaterials();
  const hashes = readdirSync(out)
    .sort()
    .map(
      (name) =>
        `${createHash("sha256")
          .update(readFileSync(join(out, name)))
          .digest("hex")}  ${basename(name)}\n`,
    );
  writeFileSync(join(out, "SHA256SUMS"), hashes.join(""));
  console.log(`${new Date().toTimeString().slice(0, 8)}  done: ${out} has`);
  console.log(hashes.join("").trimEnd());
} catch (error) {
  console.error(`release: ${error.message}`);
  process.exitCode = 1;
} finally {
  rmSync(work, { recursive: true, force: true });
}
