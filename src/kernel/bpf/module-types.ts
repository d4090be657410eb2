/**
 * Types of the kernel and of its modules (BTF) by bpf(2): a program that calls a function of a module is given a descriptor of its types,
 * which no file has (reference ebpf-programs.md §4.7).
 */
import { closeSync } from "node:fs";
import { errnoName } from "../netlink/errors.ts";
import { OBJECT_ID, TYPES_INFO } from "./attributes.ts";
import { BpfError } from "./bpf-error.ts";
import { encode, takeNumber } from "./layout.ts";
import { fillInfo } from "./object-info.ts";
import { addressOf, fixedBytes, tryBpf } from "./system-call.ts";

/** Longer than any name of a module. */
const NAME_BYTES = 64;

/** Types that are open. */
export interface OpenTypes {
  /** Of the module; `vmlinux` for the kernel's own. */
  readonly name: string;
  readonly fd: number;
  /** All of them, as the kernel has them. */
  read(): Buffer;
  close(): void;
}

/**
 * Those of these modules that are loaded and tell their types, in no order. The caller closes them.
 *
 * @throws BpfError `EPERM` without CAP_SYS_ADMIN.
 */
export function openTypes(names: readonly string[]): readonly OpenTypes[] {
  const found: OpenTypes[] = [];
  try {
    // Those of programs are among them, without a name.
    for (let id = nextId(0); id !== undefined && found.length < names.length; id = nextId(id)) {
      const types = openById(id);
      if (types === undefined) continue;
      if (names.includes(types.name)) found.push(types);
      else types.close();
    }
    return found;
  } catch (error) {
    for (const types of found) types.close();
    throw error;
  }
}

function nextId(after: number): number | undefined {
  const asked = encode(OBJECT_ID, { id: after });
  return ask("BTF_GET_NEXT_ID", asked) === undefined ? undefined : takeNumber(asked, OBJECT_ID.fields.next);
}

/** Undefined when they went meanwhile. */
function openById(id: number): OpenTypes | undefined {
  const fd = ask("BTF_GET_FD_BY_ID", encode(OBJECT_ID, { id }));
  if (fd === undefined) return undefined;
  const what = `types ${id}`;
  try {
    const name = fixedBytes(NAME_BYTES);
    fillInfo(
      fd,
      encode(TYPES_INFO, { name: addressOf(name), nameSize: NAME_BYTES }, fixedBytes(TYPES_INFO.size)),
      what,
    );
    return {
      name: Buffer.from(name.subarray(0, name.indexOf(0))).toString("latin1"),
      fd,
      read: () => readAll(fd, what),
      close: () => closeSync(fd),
    };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function readAll(fd: number, what: string): Buffer {
  const info = fixedBytes(TYPES_INFO.size);
  fillInfo(fd, info, what);
  const size = takeNumber(info, TYPES_INFO.fields.size);
  const types = fixedBytes(size);
  fillInfo(fd, encode(TYPES_INFO, { types: addressOf(types), size }, fixedBytes(TYPES_INFO.size)), what);
  return Buffer.from(types.buffer);
}

/** @returns undefined where there is nothing, or nothing more. */
function ask(command: "BTF_GET_NEXT_ID" | "BTF_GET_FD_BY_ID", attributes: Uint8Array): number | undefined {
  const { result, errno } = tryBpf(command, attributes);
  if (result >= 0) return result;
  const name = errnoName(errno);
  if (name === "ENOENT") return undefined;
  const hint =
    name === "EPERM"
      ? ": only a process with CAP_SYS_ADMIN is told of types in modules, such as those of conntrack"
      : "";
  throw new BpfError(name, `bpf: ${command}: ${name}${hint}`);
}
