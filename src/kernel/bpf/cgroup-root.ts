/** The cgroup that holds every process of the node: programs attached there see all connections (reference ebpf-operation.md §6.1). */
import { readFileSync, statfsSync, statSync } from "node:fs";
import { messageOf } from "../../logging/message-of.ts";

const CGROUP2_MAGIC = 0x63677270;
/** The inode number of the kernel's root cgroup. */
const ROOT_INODE = 1n;

export type CgroupRoot =
  | { readonly ok: true; readonly path: string }
  /** In words, with what to do. */
  | { readonly ok: false; readonly reason: string };

/**
 * @param configured a folder that is taken as it is, if it is a cgroup; empty: the root is looked for among the mounts. In a
 * container, the file system that is mounted by itself has only the container's own cgroup, where programs would see nothing but it.
 */
export function findCgroupRoot(configured: string, mountinfo: () => string = readMounts): CgroupRoot {
  if (configured !== "") return checkConfigured(configured);
  const mounts = cgroup2Mounts(mountinfo());
  const root = mounts.find((path) => inodeOf(path) === ROOT_INODE);
  if (root !== undefined) return { ok: true, path: root };
  const seen =
    mounts.length === 0 ? "no cgroup2 file system is mounted" : `${mounts.join(", ")} shows a part of the node`;
  return {
    ok: false,
    reason: `${seen}: mount the host's /sys/fs/cgroup into the container and name the folder in ebpf.cgroupRoot (--ebpf-cgroup-root)`,
  };
}

/** Where cgroup2 file systems are mounted, in the order of the list. Pure. */
export function cgroup2Mounts(mountinfo: string): readonly string[] {
  return mountinfo.split("\n").flatMap((line) => {
    const [mount = "", type = ""] = line.split(" - ");
    const path = mount.split(" ")[4];
    return type.startsWith("cgroup2 ") && path !== undefined ? [unescapeMountPath(path)] : [];
  });
}

function checkConfigured(path: string): CgroupRoot {
  try {
    if (statfsSync(path).type !== CGROUP2_MAGIC) {
      return { ok: false, reason: `ebpf.cgroupRoot: ${path} is not in a cgroup2 file system` };
    }
    if (statSync(path).isDirectory()) return { ok: true, path };
  } catch (error) {
    return { ok: false, reason: `ebpf.cgroupRoot: ${messageOf(error)}` };
  }
  return { ok: false, reason: `ebpf.cgroupRoot: ${path} is no folder` };
}

function inodeOf(path: string): bigint | undefined {
  try {
    return statSync(path, { bigint: true }).ino;
  } catch {
    // Mounted over, or not ours to see.
    return undefined;
  }
}

const readMounts = (): string => readFileSync("/proc/self/mountinfo", "utf8");

/** Blanks and the like are written as `\040`. */
function unescapeMountPath(path: string): string {
  return path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
