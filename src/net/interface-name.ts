/** Which names network interfaces can have: the rule of the kernel's `dev_valid_name` (net/core/dev.c), which looks at bytes. */

/** IFNAMSIZ of linux/if.h, without the zero at the end. */
const MOST_BYTES = 15;
/** Zero, `isspace` of the kernel (lib/ctype.c, where 0xa0 is one, too), slash and colon. */
const REFUSED: ReadonlySet<number> = new Set([0, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x20, 0xa0, 0x2f, 0x3a]);

/** {@link isInterfaceName} in words, for messages. */
export const INTERFACE_NAME_RULE = "at most 15 characters, without blanks, slashes and colons";

/** Whether an interface can have this name. Pure. */
export function isInterfaceName(name: string): boolean {
  return name !== "." && name !== ".." && isInterfaceNamePrefix(name);
}

/** Whether the name of an interface can begin so. An empty text is none. Pure. */
export function isInterfaceNamePrefix(beginning: string): boolean {
  const bytes = Buffer.from(beginning);
  return bytes.length > 0 && bytes.length <= MOST_BYTES && !bytes.some((byte) => REFUSED.has(byte));
}

/** Whether no name of an interface goes on behind this text, of which one can begin. Pure. */
export function isLongestInterfaceName(beginning: string): boolean {
  return Buffer.byteLength(beginning) === MOST_BYTES;
}
