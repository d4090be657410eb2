/**
 * A filter for a subscription, which the kernel asks before it queues a notification: what the process is told of its own doings is much, is
 * copied, looked at and thrown away, and crowds out what others do.
 *
 * Classic BPF, as `SO_ATTACH_FILTER` takes it (`linux/filter.h`). It reads numbers in network order, which netlink does not use: those that are
 * compared are turned round.
 */
import { HOST_IS_LITTLE_ENDIAN } from "./constants.ts";

const LOAD_HALF = 0x28;
const LOAD_WORD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const RETURN = 0x06;
/** In the header of the first message; all of a datagram are due to one sender. */
const TYPE_AT = 4;
const PORT_AT = 12;
const WHOLE = 0xffff_ffff;
const NOTHING = 0;
/** u16 code · u8 where to when equal · u8 where to otherwise · u32 value */
const INSTRUCTION_BYTES = 8;

/** Which notifications are not wanted. */
export interface OwnNotifications {
  /** The sender: changes when its socket is opened again. */
  portId(): number;
  /** Message type that is wanted of it nevertheless, and comes in a datagram of its own. */
  readonly exceptType: number;
}

/** Instructions that let everything through but what a sender caused; of that, one message type. Pure. */
export function filterOf(portId: number, exceptType: number): Uint8Array {
  const program = [
    [LOAD_HALF, 0, 0, TYPE_AT],
    [JUMP_IF_EQUAL, 2, 0, inNetworkOrder(exceptType, 2)],
    [LOAD_WORD, 0, 0, PORT_AT],
    [JUMP_IF_EQUAL, 1, 0, inNetworkOrder(portId, 4)],
    [RETURN, 0, 0, WHOLE],
    [RETURN, 0, 0, NOTHING],
  ] as const;
  const bytes = new Uint8Array(program.length * INSTRUCTION_BYTES);
  const view = new DataView(bytes.buffer);
  for (const [index, [code, ifEqual, otherwise, value]] of program.entries()) {
    const at = index * INSTRUCTION_BYTES;
    view.setUint16(at, code, HOST_IS_LITTLE_ENDIAN);
    view.setUint8(at + 2, ifEqual);
    view.setUint8(at + 3, otherwise);
    view.setUint32(at + 4, value, HOST_IS_LITTLE_ENDIAN);
  }
  return bytes;
}

/** The number of instructions, and where they are, as `struct sock_fprog` of a 64-bit system has them. Pure. */
export function filterReference(instructions: Uint8Array, address: bigint): Uint8Array {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, instructions.length / INSTRUCTION_BYTES, HOST_IS_LITTLE_ENDIAN);
  view.setBigUint64(8, address, HOST_IS_LITTLE_ENDIAN);
  return bytes;
}

/** What the filter reads where a number of so many bytes stands in the host's order. */
function inNetworkOrder(value: number, size: 2 | 4): number {
  const view = new DataView(new ArrayBuffer(size));
  if (size === 2) view.setUint16(0, value, HOST_IS_LITTLE_ENDIAN);
  else view.setUint32(0, value, HOST_IS_LITTLE_ENDIAN);
  return size === 2 ? view.getUint16(0) : view.getUint32(0);
}
