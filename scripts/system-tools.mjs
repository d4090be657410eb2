/** Operating system tools that a command needs, and their Debian packages. */
import { spawn, spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Tool → Debian package. */
const packageOf = {
  ip: "iproute2",
  iptables: "iptables",
  "iptables-save": "iptables",
  ip6tables: "iptables",
  sysctl: "procps",
  nft: "nftables",
  conntrack: "conntrack",
  ipset: "ipset",
  ipvsadm: "ipvsadm",
  nfacct: "nfacct",
  chromium: "chromium",
  "clang-19": "clang-19",
  buildah: "buildah",
  debootstrap: "debootstrap",
  "qemu-system-x86_64": "qemu-system-x86",
  "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64-win32",
  virtiofsd: debianRelease() < 13 ? "qemu-system-common" : "virtiofsd",
};

/** Such as 12; testing and unstable have no number and are newer than all. */
function debianRelease() {
  const text = existsSync("/etc/os-release") ? readFileSync("/etc/os-release", "utf8") : "";
  return Number(/^VERSION_ID="?(\d+)/m.exec(text)?.[1] ?? Number.POSITIVE_INFINITY);
}

const demoTools = ["ip", "iptables", "iptables-save", "ip6tables", "sysctl"];

/** For tests in network namespaces. */
const kernelTools = [...demoTools, "nft", "conntrack", "ipset", "ipvsadm", "nfacct"];

/** For the test that builds the container image. */
const imageTools = ["buildah", "debootstrap"];

/** For the virtual machine qemu of testkit/vm. User-mode Linux needs none. */
const machineTools = process.arch === "x64" ? ["qemu-system-x86_64", "virtiofsd"] : [];

/** For building the Windows parts of tests; the tests unpack Wine itself into its own folder. */
const wineTools = process.arch === "x64" ? ["x86_64-w64-mingw32-gcc"] : [];

/** The tools that each command needs. The proxy itself runs only the iptables tools; the others are for the demo and the tests. */
const toolsOf = {
  start: demoTools,
  test: kernelTools,
  "test all": [...kernelTools, ...imageTools, ...machineTools],
  // What single files say that they need (test-needs.mjs).
  "kernel-tools": kernelTools,
  "image-tools": imageTools,
  qemu: machineTools,
  // Tests request these themselves, so that others run meanwhile.
  wine: wineTools,
  browser: ["chromium"],
  bytecode: ["clang-19"],
  soak: [...demoTools, "nft"],
  attack: [...demoTools, "nft"],
  bench: [...demoTools, "nft", "ipset", "ipvsadm", ...machineTools],
};

// An ordinary user's PATH often lacks the folders of these tools.
const folders = [
  ...(process.env.PATH ?? "").split(delimiter),
  ...["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/qemu", "/usr/libexec"],
];

function isInstalled(tool) {
  return folders.some((folder) => {
    try {
      accessSync(join(folder, tool), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Root runs apt-get, so the lock is where only root can create it: another user could hold, or plant, one in a shared folder. */
const APT_LOCK = "/run/kube-proxy-ts-apt.lock";
const MOST_SECONDS = 600;
/** The exit status of flock if another process has the lock. */
const IS_HELD = 75;

/** One after the other: tests that request packages run side by side, and apt-get itself refuses a second instance. */
function apt(...args) {
  const result = lockedApt(["--nonblock"], args);
  if (result.status !== IS_HELD) return result;
  console.error(`another installation holds ${APT_LOCK}: waiting for ${MOST_SECONDS / 60} minutes at most`);
  const late = lockedApt(["--timeout", String(MOST_SECONDS)], args);
  return late.status === IS_HELD ? { ...late, stderr: `${APT_LOCK} is still held (fuser -v ${APT_LOCK})` } : late;
}

function lockedApt(waiting, args) {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  // A machine that judges changes has nothing else on it: nothing that a power cut would lose matters.
  const options = process.env.KPTS_STRICT === "1" ? ["-o", "DPkg::Options::=--force-unsafe-io"] : [];
  const words = ["--conflict-exit-code", String(IS_HELD), ...waiting, APT_LOCK, "apt-get", ...options, ...args];
  return spawnSync("flock", words, { stdio: ["ignore", "ignore", "pipe"], encoding: "utf8", env });
}

/** @param commands some of those above. */
const missingTools = (commands) =>
  [...new Set(commands.flatMap((command) => toolsOf[command] ?? []))].filter((tool) => !isInstalled(tool));

/**
 * Runs {@link ensureSystemTools} in a separate process, so that other packages can be installed meanwhile. Resolves
 * when it has ended.
 */
export async function beginSystemTools(commands) {
  if (missingTools(commands).length === 0) return;
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), ...commands], { stdio: "inherit" });
  await new Promise((done) => child.on("close", done).on("error", done));
}

/**
 * As root on Debian, installs what is missing; otherwise lists it. Never ends the program: the command that follows
 * knows what it can do without.
 */
function ensureSystemTools(commands) {
  const missing = () => missingTools(commands);
  if (missing().length === 0) return;
  const packages = () => [...new Set(missing().flatMap((tool) => packageOf[tool].split(" ")))];
  if (process.getuid?.() === 0 && isInstalled("apt-get")) {
    console.error(`installing Debian packages: ${packages().join(" ")}`);
    const install = () => apt("install", "-y", "--no-install-recommends", ...packages());
    let result = install();
    if (result.status !== 0) {
      apt("update");
      result = install();
    }
    if (result.status !== 0) console.error(`apt-get install failed: ${(result.stderr ?? String(result.error)).trim()}`);
  }
  const left = missing();
  if (left.length === 0) return;
  console.error(`missing tools: ${left.join(" ")}; install as root: apt-get install ${packages().join(" ")}`);
}

// As a program: installs the tools of some commands or, with `update`, updates the package lists.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === "update") apt("update");
  else ensureSystemTools(process.argv.slice(2));
}
