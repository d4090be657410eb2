/** A lock that lets one process at a time use a folder. It ends with the process, however that ends. */
import { closeSync, constants as fileConstants, fstatSync, openSync, statSync } from "node:fs";
import { constants } from "node:os";
import { errnoName } from "./netlink/errors.ts";
import { libc, reliableErrno } from "./netlink/libc.ts";

const EXCLUSIVE_NOW = 2 | 4;
const { O_RDONLY, O_DIRECTORY } = fileConstants;
const { EWOULDBLOCK } = constants.errno;

/** Another process uses the folder. */
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
   * Locks the folder, or keeps the lock. Locks it again if the folder was replaced in the meantime.
   * @param make creates the folder if it is missing. @throws FolderInUse; Error of node:fs
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

  /** Whether the path still names the locked folder. */
  #isHeld(): boolean {
    if (this.#fd === undefined) return false;
    const now = statSync(this.#path, { throwIfNoEntry: false });
    return now !== undefined && now.ino === fstatSync(this.#fd).ino;
  }
}
