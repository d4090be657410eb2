/** {@link BpfPins} of the running kernel: files in a bpf file system (reference ebpf-programs.md §3.6). */
import { closeSync, lstatSync, mkdirSync, readdirSync, readlinkSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { constants } from "node:os";
import { LINK_INFO, MAP_INFO, OBJECT_PATH } from "./attributes.ts";
import type { BpfPins } from "./bpf.ts";
import { BpfError } from "./bpf-error.ts";
import { HOOKS } from "./hooks.ts";
import { KernelMap } from "./kernel-map.ts";
import { descriptorOf, KernelLink } from "./kernel-objects.ts";
import { encode, takeNumber } from "./layout.ts";
import { mapFields } from "./map-definition.ts";
import { addressOf, bpf, failure, fixedCopy, objectInfo, tryBpf } from "./system-call.ts";

/** The type of a link to a cgroup (reference ebpf-programs.md §3.3). */
export const CGROUP_LINK = 3;
const FOR_ROOT = 0o700;
const { ENOENT } = constants.errno;

type Kind = "map" | "program" | "link";

export const KERNEL_PINS: BpfPins = {
  list: (folder) => unlessGone(() => ofFiles(folder, () => readdirSync(folder))),
  makeFolder: (path) => ofFiles(path, () => void mkdirSync(path, { recursive: true, mode: FOR_ROOT })),
  remove: (path) => unlessGone(() => removeName(path)) ?? false,
  pin(what, path) {
    const name = pathBytes(path);
    bpf("OBJ_PIN", encode(OBJECT_PATH, { path: addressOf(name), fd: descriptorOf(what) }), path);
  },
  move: (from, to) => ofFiles(from, () => renameSync(from, to)),
  map: (path, define) =>
    openPin(path, "map", (fd) => {
      const info = objectInfo(fd, MAP_INFO.size, path);
      const { id, maxEntries } = MAP_INFO.fields;
      const definition = define(takeNumber(info, maxEntries));
      const wanted = encode(MAP_INFO, { ...mapFields(definition), id: takeNumber(info, id) });
      if (Buffer.compare(info, wanted) !== 0) throw notOurs(path, "it is another map");
      return new KernelMap(definition, fd);
    }),
  link: (path, hook) =>
    openPin(path, "link", (fd) => {
      const info = objectInfo(fd, LINK_INFO.size, path);
      const { type, attachType } = LINK_INFO.fields;
      const isOther = hook !== undefined && takeNumber(info, attachType) !== HOOKS[hook].attachType;
      if (takeNumber(info, type) !== CGROUP_LINK || isOther)
        throw notOurs(path, `it is no link of ${hook ?? "a cgroup"}`);
      return new KernelLink(fd, path);
    }),
};

function removeName(path: string): true {
  return ofFiles(path, () => {
    if (lstatSync(path).isDirectory()) rmdirSync(path);
    else unlinkSync(path);
    return true as const;
  });
}

/** Closes the descriptor if the pinned object is of another kind. */
function openPin<T>(path: string, kind: Kind, open: (fd: number) => T): T | undefined {
  const name = pathBytes(path);
  const { result: fd, errno } = tryBpf("OBJ_GET", encode(OBJECT_PATH, { path: addressOf(name) }));
  if (fd < 0) {
    if (errno === ENOENT) return undefined;
    throw failure("OBJ_GET", errno, path);
  }
  try {
    const found = kindOf(fd);
    if (found !== kind) throw notOurs(path, `it is no ${kind} but ${found ?? "something else"}`);
    return open(fd);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** The kernel names descriptors `anon_inode:bpf-map`, `bpf-prog` and `bpf_link`. */
function kindOf(fd: number): Kind | undefined {
  const [, name] = /bpf[-_](map|prog|link)$/.exec(readlinkSync(`/proc/self/fd/${fd}`)) ?? [];
  return name === "prog" ? "program" : (name as "map" | "link" | undefined); // the expression matches no others
}

const pathBytes = (path: string): Uint8Array => fixedCopy(Buffer.from(`${path}\0`));

const notOurs = (path: string, why: string): BpfError =>
  new BpfError("invalid", `bpf: ${path} is not the expected object: ${why}`);

/** Converts errors of node:fs to BpfError. */
export function ofFiles<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    throw new BpfError(error.code as `E${string}`, `bpf: ${what}: ${String(error.code)}`); // an errno
  }
}

function unlessGone<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof BpfError && error.code === "ENOENT") return undefined;
    throw error;
  }
}
