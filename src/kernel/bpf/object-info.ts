/** What the kernel says of a map, a program, a link or types that are open. */
import { OBJECT_INFO } from "./attributes.ts";
import { encode } from "./layout.ts";
import { addressOf, bpf, fixedBytes } from "./system-call.ts";

/** @param size of the struct that is wanted. @param what for messages. @throws BpfError */
export function objectInfo(fd: number, size: number, what: string): Uint8Array {
  return fillInfo(fd, fixedBytes(size), what);
}

/** @param info the struct, with what it says of where the answers go; of {@link fixedBytes}. @returns it. @throws BpfError */
export function fillInfo(fd: number, info: Uint8Array, what: string): Uint8Array {
  bpf("OBJ_GET_INFO_BY_FD", encode(OBJECT_INFO, { fd, infoLength: info.length, info: addressOf(info) }), what);
  return info;
}
