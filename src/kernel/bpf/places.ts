/**
 * Where to attach programs: the cgroup that contains every process of the node, so that they see all connections (reference
 * ebpf-operation.md §6.1). Where to pin maps and links: a folder of a bpf file system (ebpf-programs.md §3.6).
 */
import { readdirSync, readFileSync, statfsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { attempt } from "../../logging/attempt.ts";

const CGROUP2_MAGIC = 0x63677270;
/** The inode number of the kernel's root cgroup. */
const ROOT_INODE = 1n;

/** A folder, or why there is none and what to do. */
export type FoundFolder =
  | { readonly ok: true; readonly path: string }
  | { readonly ok: false; readonly reason: string };

/**
 * @param configured a folder to use if it is a cgroup or does not exist yet; empty: find the root among the mounts. In
 * a container, the default mount has only the container's own cgroup, where programs would see nothing else.
 */
export function findCgroupRoot(configured: string, mountinfo: () => string = readMounts): FoundFolder {
  if (configured !== "") return checkConfigured(configured);
  const mounts = cgroup2Mounts(mountinfo());
  const root = rootAmong(mounts);
  if (root !== undefined) return { ok: true, path: root };
  const seen =
    mounts.length === 0 ? "no cgroup2 file system is mounted" : `${mounts.join(", ")} shows only a part of the node`;
  return {
    ok: false,
    reason: `${seen}: mount the host's /sys/fs/cgroup into the container and name the folder in ebpf.cgroupRoot (--ebpf-cgroup-root)`,
  };
}

/** The folder of the node's cgroup; undefined if none of these is it. */
export function rootAmong(folders: readonly string[]): string | undefined {
  return folders.find((path) => inodeOf(path) === ROOT_INODE);
}

/** Kubelet's cgroup of all pods, by either of its drivers. */
const OF_ALL_PODS = /^(?:.+-)?kubepods(?:\.slice)?$/;
/** Where `cgroupRoot` of kubelet may put it. */
const OF_ALL_PODS_DEPTH = 4;

/** Ids of the cgroups of pods. @param root the folder of the node's cgroup. */
export function podCgroups(root: string): ReadonlySet<bigint> {
  const found = new Set<bigint>();
  const visit = (folder: string, depth: number, isOfPods: boolean): void => {
    for (const { name } of attempt(() => readdirSync(folder, { withFileTypes: true }))?.filter(isFolder) ?? []) {
      const [path, isInside] = [join(folder, name), isOfPods || OF_ALL_PODS.test(name)];
      const id = isInside ? inodeOf(path) : undefined;
      if (id !== undefined) found.add(id);
      if (isInside || depth < OF_ALL_PODS_DEPTH) visit(path, depth + 1, isInside);
    }
  };
  visit(root, 1, false);
  return found;
}

const isFolder = (entry: { isDirectory(): boolean }): boolean => entry.isDirectory();

/** Mount points of cgroup2 file systems, in list order. */
export function cgroup2Mounts(mountinfo: string): readonly string[] {
  return mountinfo.split("\n").flatMap((line) => {
    const [mount = "", type = ""] = line.split(" - ");
    const path = mount.split(" ")[4];
    return type.startsWith("cgroup2 ") && path !== undefined ? [unescapeMountPath(path)] : [];
  });
}

/** A missing folder may appear later; programs are attached then. */
function checkConfigured(path: string): FoundFolder {
  if (!isIn(CGROUP2_MAGIC, path)) {
    return { ok: false, reason: `ebpf.cgroupRoot: ${path} is not in a cgroup2 file system` };
  }
  if (attempt(() => statSync(path).isDirectory()) !== false) return { ok: true, path };
  return { ok: false, reason: `ebpf.cgroupRoot: ${path} is not a folder` };
}

/** Undefined if another mount hides it, or if it is not accessible. */
function inodeOf(path: string): bigint | undefined {
  return attempt(() => statSync(path, { bigint: true }).ino);
}

const readMounts = (): string => readFileSync("/proc/self/mountinfo", "utf8");

/** Spaces and the like are escaped as `\040`. */
function unescapeMountPath(path: string): string {
  return path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

const BPF_MAGIC = 0xcafe4a11;
const USUAL_FILE_SYSTEM = "/sys/fs/bpf";

/** The folder used by default. */
export const USUAL_FOLDER = join(USUAL_FILE_SYSTEM, "kube-proxy-ts");

/** @param configured a folder that may have to be created; empty: the usual one. */
export function findPinFolder(configured: string): FoundFolder {
  const path = configured === "" ? USUAL_FOLDER : configured;
  if (isIn(BPF_MAGIC, path)) return { ok: true, path };
  const reason =
    configured === ""
      ? `no bpf file system is mounted at ${USUAL_FILE_SYSTEM}: mount one (mount -t bpf bpf ${USUAL_FILE_SYSTEM}), in a container that of the host`
      : `ebpf.pinFolder: ${path} is not in a bpf file system`;
  return { ok: false, reason };
}

/** Whether the path, or its existing part, is in a file system of that type. */
function isIn(magic: number, path: string): boolean {
  try {
    return statfsSync(path).type === magic;
  } catch {
    const above = dirname(path);
    return above !== path && isIn(magic, above);
  }
}
