/**
 * A filter for a subscription, which the kernel asks before it queues a notification: what the process is told of its own doings is much, is
 * copied, looked at and thrown away, and crowds out what others do.
 *
 * Classic BPF, as `SO_ATTACH_FILTER` takes it (`linux/filter.h`). It reads numbers in network order, which netlink does not use: those that are
 * compared are turned round.
 */

const LOAD_WORD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const RETURN = 0x06;
/** In the header of the first message; all of a datagram are due to one sender. */
const PORT_AT = 12;
const WHOLE = 0xffff_ffff;
const NOTHING = 0;
/** Of each instruction: u16 code · u8 where to when equal · u8 where to otherwise · u32 value */
const INSTRUCTION_BYTES = 8;

/** Instructions that let everything through but what a sender caused. Pure. */
export function filterOf(portId: number): Uint8Array {
  const program = [
    [LOAD_WORD, 0, PORT_AT],
    [JUMP_IF_EQUAL, 1, inNetworkOrder(portId)],
    [RETURN, 0, WHOLE],
    [RETURN, 0, NOTHING],
  ] as const;
  const bytes = new Uint8Array(program.length * INSTRUCTION_BYTES);
  const codes = new Uint16Array(bytes.buffer);
  const values = new Uint32Array(bytes.buffer);
  for (const [index, [code, ifEqual, value]] of program.entries()) {
    codes[4 * index] = code;
    bytes[INSTRUCTION_BYTES * index + 2] = ifEqual;
    values[2 * index + 1] = value;
  }
  return bytes;
}

/** The number of instructions, and where they are, as `struct sock_fprog` of a 64-bit system has them. Pure. */
export function filterReference(instructions: Uint8Array, address: bigint): Uint8Array {
  const words = new BigUint64Array([0n, address]);
  new Uint16Array(words.buffer)[0] = instructions.length / INSTRUCTION_BYTES;
  return new Uint8Array(words.buffer);
}

/** What the filter reads where a number stands in the host's order. */
function inNetworkOrder(value: number): number {
  return new DataView(Uint32Array.of(value).buffer).getUint32(0);
}
