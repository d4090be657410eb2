/** {@link Bpf} of the running kernel. */

import { closeSync, constants as fileConstants, openSync, statSync } from "node:fs";
import { constants } from "node:os";
import { errnoName } from "../netlink/errors.ts";
import * as attributes from "./attributes.ts";
import type { Bpf, BpfMap, BpfProgram, FoundLink } from "./bpf.ts";
import { BpfError } from "./bpf-error.ts";
import { HOOKS, type Hook } from "./hooks.ts";
import { KernelMap } from "./kernel-map.ts";
import { descriptorOf, KernelLink, KernelProgram } from "./kernel-objects.ts";
import { CGROUP_LINK, KERNEL_PINS, ofFiles } from "./kernel-pins.ts";
import { encode, takeNumber, takeWide } from "./layout.ts";
import type { MapDefinition, Program } from "./map-definition.ts";
import { addressOf, bpf, failure, fixedBytes, fixedCopy, objectInfo, tryBpf } from "./system-call.ts";

/** We use no helpers that require a GPL program (reference ebpf-programs.md §4.3). */
const LICENSE = "Apache-2.0";
const LOG_BYTES = 1 << 20;
/** The type of an array (reference ebpf-programs.md §3.4). */
const ARRAY = 2;
/** Maximum number of programs at one cgroup and hook. */
const MOST_ATTACHED = 64;
const { O_RDONLY, O_DIRECTORY } = fileConstants;

/** Does not open or query anything yet. */
export function kernelBpf(): Bpf {
  return {
    createMap: (definition) => new KernelMap(definition),
    loadProgram,
    canSetReturnValue,
    attach,
    attached,
    findLinks,
    cgroupId,
    pins: KERNEL_PINS,
  };
}

/** In an instruction's second byte: the immediate is a map descriptor. */
const REFERS_TO_MAP = 0x10;

function loadProgram(program: Program, hook: Hook, maps: readonly BpfMap[] = []): KernelProgram {
  const { name } = program;
  const instructions = fixedCopy(program.code);
  const view = new DataView(instructions.buffer);
  for (const { at, map } of program.references) {
    view.setUint8(at + 1, view.getUint8(at + 1) | REFERS_TO_MAP);
    view.setUint32(at + 4, mapDescriptor(name, maps, map), true);
  }
  const first = tryToLoad(name, hook, instructions);
  if (first.result >= 0) return new KernelProgram(first.result, name);
  const log = fixedBytes(LOG_BYTES);
  const second = tryToLoad(name, hook, instructions, log);
  if (second.result >= 0) return new KernelProgram(second.result, name);
  const text = Buffer.from(log.subarray(0, log.indexOf(0))).toString("latin1");
  if (text === "") throw failure("PROG_LOAD", first.errno, `program ${name}`);
  const code = errnoName(first.errno);
  throw new BpfError(code, `bpf: PROG_LOAD: ${code}: ${explainVerifierLog(name, text)}`);
}

/** @param log buffer for the verifier's log. */
function tryToLoad(name: string, hook: Hook, code: Uint8Array, log = new Uint8Array()): ReturnType<typeof tryBpf> {
  const { programType, attachType } = HOOKS[hook];
  const license = fixedCopy(Buffer.from(`${LICENSE}\0`));
  const wanted = encode(attributes.PROG_LOAD, {
    programType,
    expectedAttachType: attachType,
    instructionCount: code.length / 8,
    instructions: addressOf(code),
    license: addressOf(license),
    programName: Buffer.from(name),
    ...(log.length > 0 && { logLevel: 1, logSize: log.length, logBuffer: addressOf(log) }),
  });
  return tryBpf("PROG_LOAD", wanted);
}

/** `r1 = 0; call bpf_set_retval; r0 = 1; exit`. */
const SETS_RETURN_VALUE = "b701000000000000" + "85000000bb000000" + "b700000001000000" + "9500000000000000";

function canSetReturnValue(hook: Hook): boolean {
  const code = fixedCopy(Buffer.from(SETS_RETURN_VALUE, "hex"));
  const { result, errno } = tryToLoad("kpts_probe", hook, code);
  if (result >= 0) closeSync(result);
  // The verifier's error for an unknown helper.
  return result >= 0 || errno !== constants.errno.EINVAL;
}

function mapDescriptor(program: string, maps: readonly BpfMap[], wanted: MapDefinition): number {
  const map = maps.find(({ definition }) => definition === wanted);
  if (map !== undefined) return descriptorOf(map);
  throw new BpfError("invalid", `bpf: program ${program}: its map ${wanted.name} is not given`);
}

const cgroupId = (cgroup: string): bigint => ofFiles(cgroup, () => statSync(cgroup, { bigint: true }).ino);

function attach(program: BpfProgram, hook: Hook, cgroup: string): KernelLink {
  const what = `${hook} at ${cgroup}`;
  const { attachType } = HOOKS[hook];
  const fd = withDirectory(cgroup, (targetFd) =>
    bpf(
      "LINK_CREATE",
      encode(attributes.LINK_CREATE, { programFd: descriptorOf(program), targetFd, attachType }),
      what,
    ),
  );
  return new KernelLink(fd, what);
}

function attached(hook: Hook, cgroup: string): readonly number[] {
  return withDirectory(cgroup, (targetFd) => idsAt(targetFd, HOOKS[hook].attachType, `${hook} at ${cgroup}`));
}

/** Ids of the programs attached there. @param targetFd of a cgroup's folder, or the index of a device. @throws BpfError */
export function idsAt(targetFd: number, attachType: number, what = `hook ${attachType}`): readonly number[] {
  const ids = fixedBytes(MOST_ATTACHED * 4);
  const room = { programIds: addressOf(ids), programCount: MOST_ATTACHED };
  const query = encode(attributes.PROG_QUERY, { targetFd, attachType, ...room });
  bpf("PROG_QUERY", query, what);
  return [...new Uint32Array(ids.buffer, 0, takeNumber(query, attributes.PROG_QUERY.fields.programCount))];
}

/** BPF_LINK_TYPE_NETFILTER. */
const NETFILTER_LINK = 10;

/** Ids of the programs of netfilter's links, in all network namespaces. @throws BpfError `EPERM` without CAP_SYS_ADMIN. */
export function netfilterPrograms(): readonly number[] {
  const { type, programId } = attributes.LINK_INFO.fields;
  const found: number[] = [];
  for (const { fd, info } of openLinks()) {
    closeSync(fd);
    if (takeNumber(info, type) === NETFILTER_LINK) found.push(takeNumber(info, programId));
  }
  return found;
}

/** @returns undefined if it is gone. @throws BpfError `EPERM` without CAP_SYS_ADMIN. */
export const nameOfProgram = (id: number): string | undefined => programWithId(id)?.name.replace(/\0.*/s, "");

function findLinks(prefix: string, mapPrefix: string): readonly FoundLink[] {
  const found: { readonly link: KernelLink; readonly maps: readonly number[] }[] = [];
  const { type, cgroupId: cgroup, programId } = attributes.LINK_INFO.fields;
  for (const { id, fd, info } of openLinks()) {
    const isAttached = takeNumber(info, type) === CGROUP_LINK && takeWide(info, cgroup) !== 0n;
    const program = isAttached ? programWithId(takeNumber(info, programId)) : undefined;
    if (program?.name.startsWith(prefix) === true) {
      found.push({ link: new KernelLink(fd, `link ${id}`), maps: program.maps });
    } else closeSync(fd);
  }
  // Not every program of a process uses the map, but all of its programs share maps.
  const values = new Map<number, Uint8Array>();
  for (const { maps } of found) {
    const value = maps.map((id) => firstValueOf(id, mapPrefix)).find((one) => one !== undefined);
    if (value !== undefined) for (const id of maps) values.set(id, value);
  }
  return found.map(({ link, maps }) => ({ link, value: values.get(maps.find((id) => values.has(id)) ?? 0) }));
}

/** All links, of any process: the reader closes them. */
function* openLinks() {
  for (let id = nextLink(0); id !== undefined; id = nextLink(id)) {
    const fd = openById("LINK_GET_FD_BY_ID", id);
    if (fd !== undefined) yield { id, fd, info: objectInfo(fd, attributes.LINK_INFO.size, `link ${id}`) };
  }
}

function nextLink(id: number): number | undefined {
  const asked = encode(attributes.OBJECT_ID, { id });
  const { result, errno } = tryBpf("LINK_GET_NEXT_ID", asked);
  if (result >= 0) return takeNumber(asked, attributes.OBJECT_ID.fields.next);
  if (errno === constants.errno.ENOENT) return undefined;
  throw failure("LINK_GET_NEXT_ID", errno);
}

/** Undefined if it is gone. */
function openById(command: `${"LINK" | "PROG" | "MAP"}_GET_FD_BY_ID`, id: number): number | undefined {
  const { result, errno } = tryBpf(command, encode(attributes.OBJECT_ID, { id }));
  if (result >= 0) return result;
  if (errno === constants.errno.ENOENT) return undefined;
  throw failure(command, errno);
}

/** The maximum number of maps of one program. */
const MOST_MAPS = 64;

function programWithId(id: number): { readonly name: string; readonly maps: readonly number[] } | undefined {
  const fd = openById("PROG_GET_FD_BY_ID", id);
  if (fd === undefined) return undefined;
  try {
    const { fields, size } = attributes.PROGRAM_INFO;
    const ids = fixedBytes(MOST_MAPS * 4);
    const info = objectInfo(fd, size, `program ${id}`, () =>
      encode(attributes.PROGRAM_INFO, { mapCount: MOST_MAPS, mapIds: addressOf(ids) }),
    );
    return {
      name: Buffer.from(info.subarray(fields.name.at, fields.name.at + fields.name.bytes)).toString("latin1"),
      maps: [...new Uint32Array(ids.buffer, 0, Math.min(takeNumber(info, fields.mapCount), MOST_MAPS))],
    };
  } finally {
    closeSync(fd);
  }
}

/** The first value of an array, if its name begins with the prefix. */
function firstValueOf(id: number, prefix: string): Uint8Array | undefined {
  const fd = openById("MAP_GET_FD_BY_ID", id);
  if (fd === undefined) return undefined;
  try {
    const info = objectInfo(fd, attributes.MAP_INFO.size, `map ${id}`);
    const { mapName, mapType, keySize, valueSize } = attributes.MAP_INFO.fields;
    const name = Buffer.from(info.subarray(mapName.at, mapName.at + mapName.bytes)).toString("latin1");
    if (!name.startsWith(prefix) || takeNumber(info, mapType) !== ARRAY || takeNumber(info, keySize) !== 4)
      return undefined;
    const [key, value] = [fixedBytes(4), fixedBytes(takeNumber(info, valueSize))];
    const wanted = encode(attributes.MAP_ELEMENT, { mapFd: fd, key: addressOf(key), value: addressOf(value) });
    return tryBpf("MAP_LOOKUP_ELEM", wanted).result < 0 ? undefined : value;
  } finally {
    closeSync(fd);
  }
}

function withDirectory<T>(path: string, work: (fd: number) => T): T {
  const fd = ofFiles(path, () => openSync(path, O_RDONLY | O_DIRECTORY));
  try {
    return work(fd);
  } finally {
    closeSync(fd);
  }
}

/** Log lines with statistics, which explain nothing. */
const STATISTICS = /^(?:processed \d|verification time|stack depth|max_states|peak_states|mark_read)/;

/**
 * The verifier's log in one line: `kpts_connect4 is refused at 12: (61) r1 = *(u32 *)(r0 +0): R0 invalid mem access`.
 * The log's last instruction is the rejected one, and the line after it the reason.
 */
export function explainVerifierLog(program: string, log: string): string {
  const lines = log
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !STATISTICS.test(line));
  const at = lines.findLastIndex((line) => /^\d+: \([0-9a-f]{2}\)/.test(line));
  const reasons = lines.slice(at + 1).filter((line) => !/^(?:\d+: R\d|; |from \d+ to )/.test(line));
  const reason = reasons.at(0) ?? lines.at(-1) ?? "the verifier said nothing";
  // The verifier's knowledge of registers follows the instruction.
  const instruction = lines[at]?.replace(/\s*;.*$/, "");
  return `${program} is refused${instruction === undefined ? "" : ` at ${instruction}`}: ${reason}`;
}
