/** Kernel parameters: the integers under /proc/sys, or under another folder of the same shape. */
import { constants } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

type SysctlErrorCode =
  /** This kernel or namespace does not have the parameter (a module may be missing). */
  | "missing"
  /** Read-only file system, or too few privileges. */
  | "denied"
  /** The content is not an integer. */
  | "not_an_integer"
  | "failed";

export class SysctlError extends Error {
  override readonly name = "SysctlError";
  readonly code: SysctlErrorCode;
  constructor(code: SysctlErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Names are paths with slashes: `net/ipv4/ip_forward`. Both throw {@link SysctlError}. */
export interface Sysctls {
  /** The value; surrounding white space is ignored. */
  read(name: string): Promise<number>;
  write(name: string, value: number): Promise<void>;
}

/** A missing parameter must be an error, not a new file. */
const WRITE_EXISTING = constants.O_WRONLY | constants.O_TRUNC;

/** The parameters of this process's kernel and network namespace, or those under another `root`. */
export function fileSysctls(root = "/proc/sys"): Sysctls {
  return {
    async read(name) {
      let text: string;
      try {
        text = (await readFile(join(root, name), "utf8")).trim();
      } catch (cause) {
        throw fromFileError("read", name, cause);
      }
      const value = Number(text);
      if (text === "" || !Number.isSafeInteger(value)) {
        throw new SysctlError("not_an_integer", `sysctl ${name}: expected an integer, got ${JSON.stringify(text)}`);
      }
      return value;
    },
    async write(name, value) {
      try {
        await writeFile(join(root, name), String(value), { flag: WRITE_EXISTING });
      } catch (cause) {
        throw fromFileError(`write ${value} to`, name, cause);
      }
    },
  };
}

const CODES: Readonly<Record<string, SysctlErrorCode>> = {
  ENOENT: "missing",
  ENOTDIR: "missing",
  EACCES: "denied",
  EPERM: "denied",
  EROFS: "denied",
};

const ADVICE: Readonly<Record<SysctlErrorCode, string>> = {
  missing: "this kernel or network namespace has no such parameter; is the module loaded?",
  denied: "not permitted; run privileged and with a writable /proc/sys",
  not_an_integer: "not an integer",
  failed: "failed",
};

function fromFileError(operation: string, name: string, cause: unknown): SysctlError {
  const errno = cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "unknown";
  const code = CODES[errno] ?? "failed";
  return new SysctlError(code, `cannot ${operation} sysctl ${name}: ${ADVICE[code]} (${errno})`, { cause });
}
