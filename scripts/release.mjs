/**
 * `npm run release -- VERSION`: puts the new version into every file that names it, and moves the changelog's
 * Unreleased section under its own heading. Commits and publishes nothing.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const SEMVER = /^\d+\.\d+\.\d+$/;
const UNRELEASED = "## [Unreleased]\n";

/** Files that name the image with the version as its tag. */
const TAGGED = [
  "docs/distributions.md",
  "docs/install.md",
  "deploy/kubeadm/kubeproxydaemonset+strategic.yaml",
  "deploy/kubernetes/daemonset.yaml",
  "deploy/restricted.yaml",
  "deploy/trial/daemonset.yaml",
  "deploy/windows/Containerfile",
  "deploy/windows/daemonset.yaml",
];

/** @param date of the release, `2026-01-31`. @throws Error that says what to do; then nothing has been written. */
export function release(root, version, date) {
  const read = (path) => readFileSync(join(root, path), "utf8");
  const before = JSON.parse(read("package.json")).version;
  if (!SEMVER.test(version)) throw new Error(`"${version}" is no version: give one such as 1.2.3`);
  if (version === before) throw new Error(`${version} is the version already`);
  const changes = [];
  const change = (path, from, to) => {
    const text = read(path);
    if (!text.includes(from)) throw new Error(`${path}: "${from.trim()}" is not there`);
    changes.push([path, text.replaceAll(from, to)]);
  };
  change("package.json", `"version": "${before}"`, `"version": "${version}"`);
  const lock = read("package-lock.json");
  const own = `"name": "kube-proxy-ts",\n`;
  const named = lock.split(own).map((part, at) => (at === 0 ? part : part.replace(`"${before}"`, `"${version}"`)));
  changes.push(["package-lock.json", named.join(own)]);
  change("deploy/chart/Chart.yaml", `ersion: ${before}`, `ersion: ${version}`);
  change("deploy/image/Containerfile", `image.version="${before}"`, `image.version="${version}"`);
  change("deploy/kustomization.yaml", `newTag: ${before}`, `newTag: ${version}`);
  for (const path of TAGGED) change(path, `kube-proxy-ts:${before}`, `kube-proxy-ts:${version}`);
  change("CHANGELOG.md", UNRELEASED, `${UNRELEASED}\n## [${version}] - ${date}\n`);
  for (const [path, text] of changes) writeFileSync(join(root, path), text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const today = new Date().toISOString().slice(0, 10);
    release(dirname(dirname(fileURLToPath(import.meta.url))), process.argv[2] ?? "", today);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
