/** Members of a tar archive in the POSIX ustar format (IEEE Std 1003.1, pax, "ustar Interchange Format"). Pure. */

const BLOCK = 512;
/** The field takes eleven octal digits. */
const MAX_BYTES = 8 ** 11 - 1;
const MAX_NAME_BYTES = 100;
/** Of the folders that do not fit into the field of the name. */
const MAX_PREFIX_BYTES = 155;
const FILE_MODE = 0o600;

/**
 * One regular file: its header, its content, and what fills the last block.
 *
 * @param name with slashes: at most 255 bytes, and at most 100 from one of the slashes on. @param modifiedMs Unix milliseconds. @throws RangeError
 */
export function* tarMember(name: string, content: Uint8Array, modifiedMs: number): Generator<Uint8Array, void> {
  const parts = partsOf(name);
  if (parts === undefined || content.length > MAX_BYTES) throw new RangeError(`tar: ${name}`);
  const header = Buffer.alloc(BLOCK);
  header.write(parts.name, 0, "utf8");
  header.write(parts.prefix, 345, "utf8");
  header.write(octal(FILE_MODE, 7), 100, "latin1");
  header.write(octal(0, 7), 108, "latin1"); // user
  header.write(octal(0, 7), 116, "latin1"); // group
  header.write(octal(content.length, 11), 124, "latin1");
  header.write(octal(Math.floor(modifiedMs / 1000), 11), 136, "latin1");
  header.write(" ".repeat(8), 148, "latin1"); // the checksum, as it counts in the checksum
  header.write("0", 156, "latin1"); // a regular file
  header.write("ustar\u000000", 257, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\u0000 `, 148, "latin1");
  yield header;
  yield content;
  yield Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK);
}

/** The name as the two fields of a header have it; undefined where they cannot. The slash between them is in neither. */
function partsOf(name: string): { readonly prefix: string; readonly name: string } | undefined {
  if (Buffer.byteLength(name) <= MAX_NAME_BYTES) return { prefix: "", name };
  for (let slash = name.indexOf("/"); slash > 0; slash = name.indexOf("/", slash + 1)) {
    const [prefix, rest] = [name.slice(0, slash), name.slice(slash + 1)];
    if (Buffer.byteLength(prefix) > MAX_PREFIX_BYTES) return undefined;
    if (Buffer.byteLength(rest) <= MAX_NAME_BYTES && rest !== "") return { prefix, name: rest };
  }
  return undefined;
}

/** What ends an archive. */
export function tarEnd(): Uint8Array {
  return Buffer.alloc(2 * BLOCK);
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}
