/**
 * The version that this program reports. It replaces kube-proxy, so it names the Kubernetes version whose behaviour it
 * copies; build facts that only upstream's binary has are filled with those of this runtime.
 * Reference start.md §2.6, operation.md §12.4.
 */

import { CURRENT_RELEASE, releaseNames } from "../contract/config/release.ts";
import { BUILD_FACTS, type BuildInfo } from "../metrics/build-info.ts";
import { quoteGo } from "../text/go-text.ts";
import { identityLine, programIdentity } from "./program-identity.ts";

const GO_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386", ppc64: "ppc64le" };

/**
 * The build facts of this process.
 *
 * @param gitVersion the reported version; `--version=v1.37.0-suffix` changes it.
 */
export function buildInfo(gitVersion: string = CURRENT_RELEASE.version): BuildInfo {
  const [major = "", minor = ""] = gitVersion.replace(/^v/, "").split(".");
  return {
    major,
    minor,
    git_version: gitVersion,
    git_commit: "unknown",
    git_tree_state: "clean",
    build_date: "1970-01-01T00:00:00Z",
    go_version: `node${process.versions.node}`,
    compiler: "v8",
    platform: `${process.platform}/${GO_ARCHITECTURES[process.arch] ?? process.arch}`,
  };
}

/** What `--version` prints: upstream's line first, for scripts that read it, then this program's identity and the releases it copies. */
export function versionText(gitVersion: string = CURRENT_RELEASE.version): string {
  return `Kubernetes ${gitVersion}\n${identityLine(programIdentity())}\ncompatibility: ${releaseNames()}\n`;
}

/** Facts that no build of this program has. */
const EMULATION = ["EmulationMajor", "EmulationMinor", "MinCompatibilityMajor", "MinCompatibilityMinor"];

/** What `--version=raw` prints: first a line in the style of a Go struct. */
export function rawVersionText(info: BuildInfo): string {
  const goName = (fact: string) => fact.replaceAll(/(?:^|_)(.)/g, (_, letter: string) => letter.toUpperCase());
  const facts = BUILD_FACTS.map((fact) => `${goName(fact)}:${quoteGo(info[fact])}`);
  facts.splice(2, 0, ...EMULATION.map((name) => `${name}:""`));
  return `version.Info{${facts.join(", ")}}\n${identityLine(programIdentity())}\n`;
}
