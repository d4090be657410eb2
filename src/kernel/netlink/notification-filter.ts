/**
 * A filter for a subscription, which the kernel runs before it queues a notification. Without it, the many notifications of this process's own
 * changes are copied, looked at and discarded, and crowd out those of other programs.
 *
 * Classic BPF for `SO_ATTACH_FILTER` (`linux/filter.h`). BPF loads numbers in network order but netlink uses host order, so constants to compare
 * with are byte-swapped.
 */

const LOAD_WORD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const RETURN = 0x06;
/** Offset in the header of the first message; all messages of a datagram have one sender. */
const PORT_AT = 12;
const WHOLE = 0xffff_ffff;
const NOTHING = 0;
/** u16 code · u8 jump if equal · u8 jump otherwise · u32 value */
const INSTRUCTION_BYTES = 8;

/** A program that drops the notifications caused by one sender and passes all others. */
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

/** `struct sock_fprog` on 64-bit systems: the number of instructions and their address. */
export function filterReference(instructions: Uint8Array, address: bigint): Uint8Array {
  const words = new BigUint64Array([0n, address]);
  new Uint16Array(words.buffer)[0] = instructions.length / INSTRUCTION_BYTES;
  return new Uint8Array(words.buffer);
}

/** The value that BPF loads for a number in host order. */
function inNetworkOrder(value: number): number {
  return new DataView(Uint32Array.of(value).buffer).getUint32(0);
}
