/** Attributes of bpf(2) by command, with all of their offsets (reference ebpf-programs.md §3.2, §3.3). */
import { bytes, layout, u32, u64 } from "./layout.ts";

export const COMMANDS = {
  MAP_CREATE: 0,
  MAP_LOOKUP_ELEM: 1,
  MAP_UPDATE_ELEM: 2,
  MAP_DELETE_ELEM: 3,
  PROG_LOAD: 5,
  OBJ_PIN: 6,
  OBJ_GET: 7,
  PROG_TEST_RUN: 10,
  PROG_GET_FD_BY_ID: 13,
  MAP_GET_FD_BY_ID: 14,
  OBJ_GET_INFO_BY_FD: 15,
  PROG_QUERY: 16,
  MAP_LOOKUP_AND_DELETE_ELEM: 21,
  MAP_LOOKUP_BATCH: 24,
  MAP_UPDATE_BATCH: 26,
  LINK_CREATE: 28,
  LINK_UPDATE: 29,
  LINK_GET_FD_BY_ID: 30,
  LINK_GET_NEXT_ID: 31,
  LINK_DETACH: 34,
} as const;

export type BpfCommand = keyof typeof COMMANDS;

/** All kernels accept this length for every command, if fields unknown to them are zero. */
const ATTRIBUTE_BYTES = 168;

export const MAP_CREATE = layout("MAP_CREATE", ATTRIBUTE_BYTES, {
  mapType: u32(0),
  keySize: u32(4),
  valueSize: u32(8),
  maxEntries: u32(12),
  mapFlags: u32(16),
  mapName: bytes(28, 16),
});

export const MAP_ELEMENT = layout("MAP_ELEM", ATTRIBUTE_BYTES, {
  mapFd: u32(0),
  key: u64(8),
  value: u64(16),
  flags: u64(24),
});

export const MAP_BATCH = layout("MAP_BATCH", ATTRIBUTE_BYTES, {
  inBatch: u64(0),
  outBatch: u64(8),
  keys: u64(16),
  values: u64(24),
  /** In: capacity or number; out: number done. */
  count: u32(32),
  mapFd: u32(36),
});

export const PROG_LOAD = layout("PROG_LOAD", ATTRIBUTE_BYTES, {
  programType: u32(0),
  instructionCount: u32(4),
  instructions: u64(8),
  license: u64(16),
  logLevel: u32(24),
  logSize: u32(28),
  logBuffer: u64(32),
  programFlags: u32(44),
  programName: bytes(48, 16),
  expectedAttachType: u32(68),
});

export const OBJECT_INFO = layout("OBJ_GET_INFO_BY_FD", ATTRIBUTE_BYTES, {
  fd: u32(0),
  infoLength: u32(4),
  info: u64(8),
});

export const PROGRAM_INFO = layout("bpf_prog_info", 232, {
  id: u32(4),
  /** In: capacity of the buffer; out: number of ids. */
  mapCount: u32(52),
  mapIds: u64(56),
  name: bytes(64, 16),
});

/** For `…_GET_FD_BY_ID` and `…_GET_NEXT_ID`, which require CAP_SYS_ADMIN. */
export const OBJECT_ID = layout("GET_ID", ATTRIBUTE_BYTES, {
  id: u32(0),
  /** Out: the next object's id. */
  next: u32(4),
});

/** The part that a definition determines. */
export const MAP_INFO = layout("bpf_map_info", 40, {
  mapType: u32(0),
  id: u32(4),
  keySize: u32(8),
  valueSize: u32(12),
  maxEntries: u32(16),
  mapFlags: u32(20),
  mapName: bytes(24, 16),
});

/** Of a link to a cgroup. */
export const LINK_INFO = layout("bpf_link_info", 32, {
  type: u32(0),
  id: u32(4),
  programId: u32(8),
  /** The directory's inode number; 0 if the cgroup is gone. */
  cgroupId: u64(16),
  attachType: u32(24),
});

export const PROG_QUERY = layout("PROG_QUERY", ATTRIBUTE_BYTES, {
  targetFd: u32(0),
  attachType: u32(4),
  programIds: u64(16),
  /** In: capacity; out: number. */
  programCount: u32(24),
});

export const LINK_CREATE = layout("LINK_CREATE", ATTRIBUTE_BYTES, {
  programFd: u32(0),
  targetFd: u32(4),
  attachType: u32(8),
});

export const LINK_UPDATE = layout("LINK_UPDATE", ATTRIBUTE_BYTES, {
  linkFd: u32(0),
  newProgramFd: u32(4),
  flags: u32(8),
  oldProgramFd: u32(12),
});

/** For OBJ_PIN; OBJ_GET has no descriptor. */
export const OBJECT_PATH = layout("OBJ_PIN", ATTRIBUTE_BYTES, { path: u64(0), fd: u32(8) });

export const LINK_DETACH = layout("LINK_DETACH", ATTRIBUTE_BYTES, { linkFd: u32(0) });
