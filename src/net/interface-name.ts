/** Valid names of network interfaces: the rule of the kernel's `dev_valid_name` (net/core/dev.c), which checks bytes. */

/** IFNAMSIZ of linux/if.h, without the terminating zero. */
const MOST_BYTES = 15;
/** Zero, the kernel's `isspace` (lib/ctype.c, which includes 0xa0), slash and colon. */
const REFUSED: ReadonlySet<number> = new Set([0, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x20, 0xa0, 0x2f, 0x3a]);

/** {@link isInterfaceName} in words, for messages. */
export const INTERFACE_NAME_RULE = "at most 15 characters, without blanks, slashes and colons";

/** Whether an interface can have this name. */
export function isInterfaceName(name: string): boolean {
  return name !== "." && name !== ".." && isInterfaceNamePrefix(name);
}

/** Whether the name of an interface can begin with this text; an empty text is not a beginning. */
export function isInterfaceNamePrefix(beginning: string): boolean {
  const bytes = Buffer.from(beginning);
  return bytes.length > 0 && bytes.length <= MOST_BYTES && !bytes.some((byte) => REFUSED.has(byte));
}

/** Whether no longer interface name begins with this text, which must be a possible beginning. */
export function isLongestInterfaceName(beginning: string): boolean {
  return Buffer.byteLength(beginning) === MOST_BYTES;
}
