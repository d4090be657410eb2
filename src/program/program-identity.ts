/**
 * This program's identity, besides the kube-proxy release that it replaces: its own version, and the commit it was
 * built from.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

interface ProgramIdentity {
  readonly name: "kube-proxy-ts";
  /** The version in package.json. */
  readonly version: string;
  /** 40 hexadecimal digits, followed by `-dirty` if sources had changed; `unknown` if it cannot be found out. */
  readonly commit: string;
  /** The version of Node.js that runs it, `v24.21.0`. */
  readonly node: string;
}

/** Where deployments of this program open the daemon's inspect socket, and its commands look for it. */
export const DEFAULT_INSPECT_SOCKET = "/run/kube-proxy/inspect.sock";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const COMMIT = /^[0-9a-f]{7,64}(-dirty)?$/;
const UNKNOWN = "unknown";

let known: ProgramIdentity | undefined;

/** The identity of the running program; read from its files once. */
export function programIdentity(): ProgramIdentity {
  known ??= readIdentity(ROOT);
  return known;
}

/**
 * Reads the identity of the program in a folder. The commit comes from git's files in a checkout, otherwise from the
 * build (scripts/build.mjs).
 */
export function readIdentity(root: string): ProgramIdentity {
  const version = textField(join(root, "package.json"), "version") ?? UNKNOWN;
  const commit = checkedOutCommit(root) ?? textField(join(root, "dist/build-info.json"), "commit") ?? UNKNOWN;
  return { name: "kube-proxy-ts", version, commit: COMMIT.test(commit) ? commit : UNKNOWN, node: process.version };
}

/** `kube-proxy-ts 0.1.0 (commit 0123…, Node.js v24.21.0)`. */
export function identityLine({ name, version, commit, node }: ProgramIdentity): string {
  return `${name} ${version} (commit ${commit}, Node.js ${node})`;
}

/** What follows upstream's part of the User-Agent: `kube-proxy-ts/0.1.0 (0123…)`. */
export function userAgentProduct({ name, version, commit }: ProgramIdentity): string {
  return `${name}/${version} (${commit})`;
}

function textField(path: string, name: string): string | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(path, "utf8"));
    const field = Object.entries(value ?? {}).find(([key]) => key === name)?.[1];
    return typeof field === "string" ? field : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads the commit of a checkout or linked worktree without git itself: from HEAD or its branch or, where that is packed or shared,
 * from the last line of HEAD's reflog. Builds from a git URL have no reflog.
 */
function checkedOutCommit(root: string): string | undefined {
  try {
    const marker = join(root, ".git");
    const folder = statSync(marker).isDirectory() ? marker : resolve(root, textOf(marker).replace(/^gitdir: /, ""));
    const head = textOf(join(folder, "HEAD"));
    const branch = /^ref: (.*)/.exec(head)?.[1];
    if (branch === undefined) return head;
    const own = join(folder, branch);
    return existsSync(own) ? textOf(own) : textOf(join(folder, "logs/HEAD")).split("\n").at(-1)?.split(" ")[1];
  } catch {
    return undefined;
  }
}

function textOf(path: string): string {
  return readFileSync(path, "utf8").trim();
}
