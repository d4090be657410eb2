/** What the kernel says of a map, a program or a link that is open. */
import { OBJECT_INFO } from "./attributes.ts";
import { encode } from "./layout.ts";
import { addressOf, bpf, fixedBytes } from "./system-call.ts";

/** @param size of the struct that is wanted. @param what for messages. @throws BpfError */
export function objectInfo(fd: number, size: number, what: string): Uint8Array {
  const info = fixedBytes(size);
  bpf("OBJ_GET_INFO_BY_FD", encode(OBJECT_INFO, { fd, infoLength: info.length, info: addressOf(info) }), what);
  return info;
}
