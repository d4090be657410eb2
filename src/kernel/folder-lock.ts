/** A folder that one process at a time uses. The lock ends with the process, however it ends. */
import { closeSync, constants as fileConstants, fstatSync, openSync, statSync } from "node:fs";
import { constants } from "node:os";
import { errnoName } from "./netlink/errors.ts";
import { libc, reliableErrno } from "./netlink/libc.ts";

const EXCLUSIVE_NOW = 2 | 4;
const { O_RDONLY, O_DIRECTORY } = fileConstants;
const { EWOULDBLOCK } = constants.errno;

/** Thrown where another process uses the folder. */
export class FolderInUse extends Error {
  override readonly name = "FolderInUse";
}

export class FolderLock {
  readonly #path: string;
  #fd: number | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Takes the folder, or goes on with it. A folder that was made again since then is taken again.
   * @param make the folder, where there is none. @throws FolderInUse; Error of node:fs
   */
  hold(make: (path: string) => void): void {
    while (!this.#isHeld()) {
      this.release();
      make(this.#path);
      const fd = openSync(this.#path, O_RDONLY | O_DIRECTORY);
      this.#fd = fd;
      const errno = reliableErrno(libc(), () => libc().flock(fd, EXCLUSIVE_NOW));
      if (errno === -1) continue;
      this.release();
      if (errno === EWOULDBLOCK) throw new FolderInUse(`another process of this program uses ${this.#path}`);
      throw new Error(`${this.#path} cannot be locked: ${errnoName(errno)}`);
    }
  }

  release(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  /** Whether what is locked is what the path names now. */
  #isHeld(): boolean {
    if (this.#fd === undefined) return false;
    const now = statSync(this.#path, { throwIfNoEntry: false });
    return now !== undefined && now.ino === fstatSync(this.#fd).ino;
  }
}
