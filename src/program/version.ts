/**
 * The version that this program reports. It takes the place of kube-proxy, so it names the Kubernetes version whose
 * behaviour it has; build facts that only upstream's binary has are filled with those of this runtime.
 * Reference start.md §2.6, operation.md §12.4.
 */
import { quoteGo } from "../config/go-text.ts";
import type { BuildInfo } from "../server/metrics/metrics.ts";
import { identityLine, programIdentity } from "./program-identity.ts";

/** The Kubernetes release whose kube-proxy this program replaces. */
export const KUBERNETES_VERSION = "v1.36.2";
export const KUBERNETES_MAJOR = "1";
export const KUBERNETES_MINOR = "36";

const GO_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386", ppc64: "ppc64le" };

/**
 * The build facts of this process.
 *
 * @param gitVersion the reported version; `--version=v1.36.2-suffix` changes it.
 */
export function buildInfo(gitVersion: string = KUBERNETES_VERSION): BuildInfo {
  return {
    major: KUBERNETES_MAJOR,
    minor: KUBERNETES_MINOR,
    gitVersion,
    gitCommit: "unknown",
    gitTreeState: "clean",
    buildDate: "1970-01-01T00:00:00Z",
    goVersion: `node${process.versions.node}`,
    compiler: "v8",
    platform: `${process.platform}/${GO_ARCHITECTURES[process.arch] ?? process.arch}`,
  };
}

/** What `--version` prints: upstream's line first, for scripts that read it, then who this really is. */
export function versionText(gitVersion: string = KUBERNETES_VERSION): string {
  return `Kubernetes ${gitVersion}\n${identityLine(programIdentity())}\n`;
}

/** What `--version=raw` prints: first a line in the style of a Go struct. */
export function rawVersionText(info: BuildInfo): string {
  const fields: readonly (readonly [string, string])[] = [
    ["Major", info.major],
    ["Minor", info.minor],
    ["EmulationMajor", ""],
    ["EmulationMinor", ""],
    ["MinCompatibilityMajor", ""],
    ["MinCompatibilityMinor", ""],
    ["GitVersion", info.gitVersion],
    ["GitCommit", info.gitCommit],
    ["GitTreeState", info.gitTreeState],
    ["BuildDate", info.buildDate],
    ["GoVersion", info.goVersion],
    ["Compiler", info.compiler],
    ["Platform", info.platform],
  ];
  const facts = fields.map(([name, value]) => `${name}:${quoteGo(value)}`).join(", ");
  return `version.Info{${facts}}\n${identityLine(programIdentity())}\n`;
}
