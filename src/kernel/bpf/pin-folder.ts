/** Where names of maps and links can be kept: a folder of a bpf file system (reference ebpf-programs.md §3.6). */
import { statfsSync } from "node:fs";
import { dirname, join } from "node:path";

const BPF_MAGIC = 0xcafe4a11;
const USUAL_FILE_SYSTEM = "/sys/fs/bpf";

/** The folder when none is configured. */
export const USUAL_FOLDER = join(USUAL_FILE_SYSTEM, "kube-proxy-ts");
export type PinFolder =
  | { readonly ok: true; readonly path: string }
  /** In words, with what to do. */
  | { readonly ok: false; readonly reason: string };

/** @param configured a folder that may have to be made; empty: the usual one. */
export function findPinFolder(configured: string): PinFolder {
  const path = configured === "" ? USUAL_FOLDER : configured;
  if (isBpfFileSystem(path)) return { ok: true, path };
  const reason =
    configured === ""
      ? `no bpf file system is mounted at ${USUAL_FILE_SYSTEM}: mount one (mount -t bpf bpf ${USUAL_FILE_SYSTEM}), in a container that of the host`
      : `ebpf.pinFolder: ${path} is not in a bpf file system`;
  return { ok: false, reason };
}

/** Of the path, or of what there is of it. */
function isBpfFileSystem(path: string): boolean {
  try {
    return statfsSync(path).type === BPF_MAGIC;
  } catch {
    const above = dirname(path);
    return above !== path && isBpfFileSystem(above);
  }
}
