/** Archives in the "new ASCII" cpio format, which the kernel unpacks at boot (Documentation/driver-api/early-userspace). */

export interface CpioEntry {
  /** Without a leading slash; its folders must come before it. */
  readonly path: string;
  /** Type and permissions, as in stat(2). */
  readonly mode: number;
  readonly content?: Uint8Array;
}

export const FOLDER = 0o040755;
export const PROGRAM = 0o100755;

function padded(parts: Buffer[]): Buffer {
  const whole = Buffer.concat(parts);
  return Buffer.concat([whole, Buffer.alloc(-whole.length & 3)]);
}

function member(inode: number, { path, mode, content = new Uint8Array() }: CpioEntry): Buffer[] {
  const name = Buffer.from(`${path}\0`);
  // inode, mode, uid, gid, links, mtime, size, four device numbers, length of the name, checksum (none).
  const fields = [inode, mode, 0, 0, 1, 0, content.length, 0, 0, 0, 0, name.length, 0];
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, "0")).join("")}`;
  return [padded([Buffer.from(header), name]), padded([Buffer.from(content)])];
}

/** Root owns everything. */
export function cpioArchive(entries: readonly CpioEntry[]): Buffer {
  const members = [...entries, { path: "TRAILER!!!", mode: 0 }];
  return Buffer.concat(members.flatMap((entry, index) => member(index + 1, entry)));
}
